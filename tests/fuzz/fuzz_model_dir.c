/* fuzz_model_dir.c - any directory as a checkpoint to be packed: refused with one sentence and
 * nothing left, or packed, in either format, into what verifies against the original. The input is
 * that of pieces.h. */
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

static binade_status pack(size_t choice) {
    binade_error err = {""};
    binade_pack_options options = {
        .size = sizeof options,
        .format = choice % 2 ? 1 : 2,
        .classes = "linear,embed,ple,mm,other",
        .no_hash = choice / 2 % 2,
        .nthreads = 1 + choice / 4 % 2,
        .event = stop_if_large,
    };
    return check_refusal(binade_pack(place_in, place_out, &options, NULL, &err), &err);
}

static void check_dir(size_t choice) {
    binade_checkpoint *c;
    binade_error err = {""};
    bool is_packed = false;
    bool opens = !check_refusal(binade_open(place_in, NULL, &c, &err), &err);
    if (opens) is_packed = binade_format(c) != 0;
    binade_close(c);
    binade_status status = pack(choice);
    place_check(!status);
    REQUIRE(status || (opens && !is_packed));
    if (!status) REQUIRE(!place_verify(place_out, place_in, 1));
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t nbytes) {
    place_fill(input, nbytes);
    check_dir(nbytes);
    place_clear();
    return 0;
}
