/* Rank tables: the order of exponents, ties, absent exponents. */
#include "check.h"
#include "format/rank_table.h"

#include <string.h>

static void test_order(void) {
    uint64_t counts[256] = {[7] = 5, [200] = 9, [3] = 5, [255] = (uint64_t)1 << 40, [0] = 1};
    uint8_t table[256], rank_of[256];
    const uint8_t expected[6] = {255, 200, 3, 7, 0, 0}; /* 3 before 7: a tie */

    rank_table_build(counts, table, rank_of);
    CHECK(memcmp(table, expected, sizeof expected) == 0, "order of the exponents");
    for (unsigned rank = 5; rank < 256; rank++)
        CHECK(table[rank] == 0, "table[%u] is %u, expected 0", rank, table[rank]);
    for (unsigned rank = 0; rank < 5; rank++)
        CHECK(rank_of[table[rank]] == rank, "rank of %u", table[rank]);
    /* Absent ones follow in ascending order: 1, 2, 4, 5, 6, 8, ... */
    CHECK(rank_of[1] == 5 && rank_of[2] == 6 && rank_of[4] == 7 && rank_of[8] == 10 &&
              rank_of[254] == 255,
          "ranks of absent exponents");
}

static void test_permutation(void) {
    uint64_t counts[256], state = 1;

    for (unsigned trial = 0; trial < 100; trial++) {
        uint8_t table[256], rank_of[256];
        bool seen[256] = {false};

        for (unsigned e = 0; e < 256; e++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            counts[e] = trial == 0 ? 0 : state >> 33 & (trial < 50 ? 3 : 0xfffff);
        }
        rank_table_build(counts, table, rank_of);
        for (unsigned e = 0; e < 256; e++)
            seen[rank_of[e]] = true;
        for (unsigned e = 0; e < 256; e++) {
            CHECK(seen[e], "trial %u: no exponent has rank %u", trial, e);
            CHECK(table[rank_of[e]] == (counts[e] > 0 ? e : 0), "trial %u: entry of exponent %u",
                  trial, e);
            for (unsigned f = 0; f < e; f++)
                if ((counts[f] >= counts[e]) != (rank_of[f] < rank_of[e]))
                    CHECK(false, "trial %u: exponents %u and %u", trial, f, e);
        }
    }
}

static void test_counts_add_up(void) {
    const uint8_t bf16[] = {0x80, 0x3f, 0x00, 0xc0, 0xff, 0x7f, 0x80, 0xbf}; /* 1, -2, NaN, -1 */
    uint64_t counts[256] = {[127] = 10};
    uint64_t expected[256] = {[127] = 12, [128] = 1, [255] = 1};

    count_exponents_plain(bf16, 4, counts);
    CHECK(memcmp(counts, expected, sizeof counts) == 0, "counts of four weights");
}

int main(void) {
    test_order();
    test_permutation();
    test_counts_add_up();
    return check_end();
}
