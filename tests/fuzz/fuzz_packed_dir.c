/* fuzz_packed_dir.c - any directory as a packed checkpoint: opened, read, verified, unpacked. What
 * is wrong is refused with one sentence and leaves nothing behind; what verifies also unpacks, and
 * to what was verified. The input is that of pieces.h. */
#include <dirent.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "parts.h"
#include "pieces.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *input, size_t nbytes);
size_t LLVMFuzzerMutate(uint8_t *data, size_t nbytes, size_t capacity);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t nbytes, size_t capacity, unsigned seed);

/* A few bytes may well describe a terabyte of zeros. */
enum { TOTAL_MAX_NBYTES = 1 << 24 };

static char base[64], in[80], sub[80], out[80];

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *walk) {
    (void)info, (void)type, (void)walk;
    return remove(path);
}

static void remove_tree(const char *path) {
    nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static void remove_base(void) {
    remove_tree(base);
}

/* Memory rather than a disk, where there is a file system for it. */
int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    const char *place = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(base, sizeof base, "%s/binade-fuzz-XXXXXX", place);
    if (!mkdtemp(base)) {
        perror(base);
        exit(1);
    }
    atexit(remove_base);
    snprintf(in, sizeof in, "%s/in", base);
    snprintf(sub, sizeof sub, "%s/in/sub", base);
    snprintf(out, sizeof out, "%s/out", base);
    return 0;
}

static int stop_if_large(void *user, const binade_event *event) {
    (void)user;
    return event->kind == BINADE_EVENT_PROGRESS && event->total > TOTAL_MAX_NBYTES;
}

static void check_refusal(binade_status status, const binade_error *err) {
    REQUIRE(status == BINADE_E_DATA || status == BINADE_E_USAGE || status == BINADE_E_CANCELLED);
    REQUIRE(is_sentence(err->message));
}

static void read_tensor(const binade_checkpoint *c, size_t i) {
    binade_tensor t;
    binade_error err = {""};
    binade_get(c, i, &t);
    REQUIRE(t.name[t.name_nbytes] == '\0');
    REQUIRE(binade_find(c, t.name, t.name_nbytes) == i);
    uint8_t *data = exact((size_t)t.nbytes);
    binade_status status = binade_read_rows(c, i, 0, t.rows, data, (size_t)t.nbytes, &err);
    if (status) check_refusal(status, &err);
    for (uint64_t row = 0; !status && row < t.rows && row < 3; row++) {
        size_t row_nbytes = (size_t)(t.nbytes / t.rows);
        uint8_t *one = exact(row_nbytes);
        REQUIRE(binade_read_rows(c, i, row, row + 1, one, row_nbytes, &err) == BINADE_OK);
        REQUIRE(row_nbytes == 0 || !memcmp(one, data + row * row_nbytes, row_nbytes));
        free(one);
    }
    free(data);
}

static binade_status verify(const char *against, unsigned nthreads) {
    binade_error err = {""};
    binade_verify_options options = {
        .size = sizeof options, .against = against, .nthreads = nthreads, .event = stop_if_large};
    binade_status status = binade_verify(in, &options, NULL, &err);
    if (status) check_refusal(status, &err);
    return status;
}

static binade_status unpack(unsigned nthreads) {
    binade_error err = {""};
    binade_unpack_options options = {
        .size = sizeof options, .nthreads = nthreads, .event = stop_if_large};
    binade_status status = binade_unpack(in, out, &options, NULL, &err);
    if (status) check_refusal(status, &err);
    return status;
}

/* Nothing but what was read and, if it is there, the result. */
static void check_base(bool has_out) {
    DIR *dir = opendir(base);
    size_t count = 0;
    REQUIRE(dir);
    while (readdir(dir))
        count++;
    closedir(dir);
    REQUIRE(count == 2 + 1 + has_out);
    REQUIRE((access(out, F_OK) == 0) == has_out);
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
    binade_status status = binade_open(in, NULL, &c, &err);
    if (status) {
        check_refusal(status, &err);
        REQUIRE(!c && verify(NULL, nthreads) && unpack(nthreads));
        check_base(false);
        return;
    }
    for (size_t i = 0; i < binade_count(c); i++)
        read_tensor(c, i);
    binade_status verified = verify(NULL, nthreads), unpacked = unpack(nthreads);
    check_base(!unpacked);
    /* Only `verify` knows whether a recorded SHA-256 is true. */
    REQUIRE(!verified || unpacked || binade_has_records(c));
    REQUIRE(verified || !unpacked);
    if (!verified && is_checkpoint(out)) REQUIRE(!verify(out, nthreads));
    binade_close(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t nbytes) {
    struct piece pieces[NPIECES_MAX];
    size_t npieces = pieces_read(input, nbytes, pieces);
    if (mkdir(in, 0777) || mkdir(sub, 0777)) {
        perror(in);
        exit(1);
    }
    for (size_t i = 0; i < npieces; i++)
        piece_put(&pieces[i], in);
    check_dir(1 + nbytes % 2);
    remove_tree(in);
    remove_tree(out);
    return 0;
}

/* Changes one section of one file, so that the others keep their places. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t nbytes, size_t capacity, unsigned seed) {
    struct piece pieces[NPIECES_MAX];
    size_t npieces = pieces_read(data, nbytes, pieces);
    if (npieces == 0 || seed % 8 == 0) return LLVMFuzzerMutate(data, nbytes, capacity);
    struct piece *p = &pieces[seed / 8 % npieces];
    unsigned s = seed / 64 % 2;
    if (p->nbytes[s] == 0) s = 1 - s;

    size_t room = p->nbytes[s] + (capacity > nbytes ? capacity - nbytes : 0);
    if (room > SECTION_MAX_NBYTES) room = SECTION_MAX_NBYTES;
    uint8_t *section = exact(room + 1), *whole = exact(capacity);
    if (p->nbytes[s] > 0) memcpy(section, p->sections[s], p->nbytes[s]);
    p->nbytes[s] = LLVMFuzzerMutate(section, p->nbytes[s], room);
    p->sections[s] = section;
    size_t written = pieces_write(pieces, npieces, whole, capacity);
    if (written > 0) memcpy(data, whole, written);
    free(whole);
    free(section);
    return written > 0 ? written : LLVMFuzzerMutate(data, nbytes, capacity);
}
