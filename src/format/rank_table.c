#include "format/rank_table.h"

#include "format/bf16.h"

void count_exponents_plain(const uint8_t *bf16, size_t n, uint64_t counts[256]) {
    for (size_t i = 0; i < n; i++)
        counts[bf16_exponent(bf16_load(bf16, i))]++;
}

void rank_table_build(const uint64_t counts[256], uint8_t table[256], uint8_t rank_of[256]) {
    uint8_t order[256];

    /* An insertion sort keeps equal counts, absent exponents among them, in ascending order. */
    for (unsigned e = 0; e < 256; e++) {
        unsigned rank = e;
        for (; rank > 0 && counts[order[rank - 1]] < counts[e]; rank--)
            order[rank] = order[rank - 1];
        order[rank] = (uint8_t)e;
    }
    for (unsigned rank = 0; rank < 256; rank++) {
        uint8_t e = order[rank];
        rank_of[e] = (uint8_t)rank;
        table[rank] = counts[e] > 0 ? e : 0;
    }
}
