/* info.h - what `binade info` finds out about a checkpoint, and how it shows it. */
#ifndef BINADE_CLI_INFO_H
#define BINADE_CLI_INFO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "binade.h"
#include "console.h"

/* Of one tensor; all but runtime_nbytes is 0 if it is not BF16. */
struct info_tensor {
    bool measured; /* it is BF16 */
    uint64_t nweights, stored_nbits;
    uint64_t runtime_nbytes; /* in R4, or as it is if R4 does not hold it */
    double entropy;          /* of its exponents, bits a weight */
};

struct info_class {
    uint64_t ntensors, npacked;
    uint64_t nbytes, stored_nbytes, runtime_nbytes; /* of all tensors */
    uint64_t nweights, stored_nbits;                /* of BF16 tensors */
    double entropy_nbits; /* sum of entropy times weights over the BF16 tensors */
};

struct info {
    const binade_checkpoint *checkpoint;
    size_t count;
    struct info_tensor *tensors; /* [count] */
    struct info_class classes[BINADE_NCLASSES], total;
};

/* Bits a weight, entropy and the smallest that exponent coding can reach: sign and mantissa plus
 * the entropy. Only for nweights > 0. */
struct info_rates {
    double stored, entropy, limit, above;
};
struct info_rates info_rates(uint64_t nweights, uint64_t stored_nbits, double entropy_nbits);

void info_print(const struct info *info, bool verbose);
void info_print_json(const struct info *info, const struct console *console);

#endif
