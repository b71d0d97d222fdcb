/* rank_table.h - exponents ordered by how often they occur in a tensor. */
#ifndef BINADE_FORMAT_RANK_TABLE_H
#define BINADE_FORMAT_RANK_TABLE_H

#include <stddef.h>
#include <stdint.h>

/* counts[e] += how often exponent e occurs among n weights (cpu/kernels.h has faster ones). */
void count_exponents_plain(const uint8_t *bf16, size_t n, uint64_t counts[256]);

/* Rank 0 is the most frequent exponent, ties go to the smaller one. table[rank] is the exponent,
 * and 0 for ranks that no exponent of the tensor has. rank_of[e] is a permutation: exponents that
 * do not occur follow in ascending order. */
void rank_table_build(const uint64_t counts[256], uint8_t table[256], uint8_t rank_of[256]);

#endif
