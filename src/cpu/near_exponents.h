/* near_exponents.h - where most exponents of a tensor lie.
 *
 * Nearly all exponents of weights are 0 or lie in a few neighbouring values. The counting kernels
 * compare whole vectors with those NNEAR values and count the others one by one.
 */
#ifndef BINADE_CPU_NEAR_EXPONENTS_H
#define BINADE_CPU_NEAR_EXPONENTS_H

#include <stdint.h>

enum {
    NNEAR = 12,
    NEAR_GUESS = 112, /* weights of 0.01 or so */
    NEAR_BLOCK = 255, /* vectors in a block: the most hits that a byte can count */
    NEAR_TRIAL = 8,   /* vectors in the first block, which tries the guess */
};

/* The first (1 or more) of the NNEAR neighbours that occur most often by these counts. */
unsigned near_exponents(const uint64_t counts[256]);

#endif
