/* fuzz_packed_dir.c - any directory as a packed checkpoint: opened, read, verified, unpacked. What
 * is wrong is refused with one sentence and leaves nothing behind; what verifies also unpacks, and
 * to what was verified. The input is that of pieces.h. */
#include <stdlib.h>
#include <string.h>

#include "pieces.h"
#include "place.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *input, size_t nbytes);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t nbytes, size_t capacity, unsigned seed);

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    place_open();
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t nbytes, size_t capacity, unsigned seed) {
    return pieces_mutate(data, nbytes, capacity, seed);
}

/* Whole, row by row, and its statistics. */
static void read_tensor(const binade_checkpoint *c, size_t i, unsigned nthreads) {
    binade_tensor t;
    binade_stats stats;
    binade_error err = {""};
    binade_get(c, i, &t);
    REQUIRE(t.name[t.name_nbytes] == '\0');
    REQUIRE(binade_find(c, t.name, t.name_nbytes) == i);
    uint8_t *data = exact((size_t)t.nbytes);
    binade_status status = binade_read_rows(c, i, 0, t.rows, data, (size_t)t.nbytes, &err);
    check_refusal(status, &err);
    for (uint64_t row = 0; !status && row < t.rows && row < 3; row++) {
        size_t row_nbytes = (size_t)(t.nbytes / t.rows);
        uint8_t *one = exact(row_nbytes);
        if (t.nbytes % t.rows)
            REQUIRE(binade_read_rows(c, i, row, row + 1, one, row_nbytes, &err) == BINADE_E_USAGE);
        else
            REQUIRE(binade_read_rows(c, i, row, row + 1, one, row_nbytes, &err) == BINADE_OK &&
                    (row_nbytes == 0 || !memcmp(one, data + row * row_nbytes, row_nbytes)));
        free(one);
    }
    free(data);
    binade_status measured = check_refusal(binade_measure(c, i, &stats, nthreads, &err), &err);
    if (!strcmp(t.dtype, "BF16"))
        REQUIRE(measured == status && (measured || stats.nweights == t.nbytes / 2));
}

static binade_status unpack(unsigned nthreads) {
    binade_error err = {""};
    binade_unpack_options options = {
        .size = sizeof options, .nthreads = nthreads, .event = stop_if_large};
    return check_refusal(binade_unpack(place_in, place_out, &options, NULL, &err), &err);
}

/* Records may give shards names that no loader looks for. */
static bool is_checkpoint(const char *dir) {
    binade_checkpoint *c;
    bool is_one = binade_open(dir, NULL, &c, NULL) == BINADE_OK;
    binade_close(c);
    return is_one;
}

static void check_dir(unsigned nthreads) {
    binade_checkpoint *c;
    binade_error err = {""};
    if (check_refusal(binade_open(place_in, NULL, &c, &err), &err)) {
        REQUIRE(!c && place_verify(place_in, NULL, nthreads) && unpack(nthreads));
        place_check(false);
        return;
    }
    for (size_t i = 0; i < binade_count(c); i++)
        read_tensor(c, i, nthreads);
    binade_status verified = place_verify(place_in, NULL, nthreads), unpacked = unpack(nthreads);
    place_check(!unpacked);
    /* Only `verify` knows whether a recorded SHA-256 is true. */
    REQUIRE(!verified || unpacked || binade_has_records(c));
    REQUIRE(verified || !unpacked);
    if (!verified && is_checkpoint(place_out))
        REQUIRE(!place_verify(place_in, place_out, nthreads));
    binade_close(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t nbytes) {
    place_fill(input, nbytes);
    check_dir(1 + nbytes % 2);
    place_clear();
    return 0;
}
