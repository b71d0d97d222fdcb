#include "cpu/near_exponents.h"

unsigned near_exponents(const uint64_t counts[256]) {
    uint64_t sum = 0, best_sum = 0;
    unsigned best = NEAR_GUESS;

    for (unsigned e = 1; e < 256; e++) {
        sum += counts[e];
        if (e > NNEAR) sum -= counts[e - NNEAR];
        if (e >= NNEAR && sum > best_sum) {
            best_sum = sum;
            best = e + 1 - NNEAR;
        }
    }
    return best;
}
