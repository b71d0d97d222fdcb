/* place.c - see place.h. */
#include "place.h"

#include <dirent.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pieces.h"

enum { TOTAL_MAX_NBYTES = 1 << 24 };

char place_in[80], place_out[80];
static char base[64], sub[88];

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

void place_open(void) {
    /* Memory rather than a disk, where there is a file system for it. */
    const char *parent = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(base, sizeof base, "%s/binade-fuzz-XXXXXX", parent);
    if (!mkdtemp(base)) {
        perror(base);
        exit(1);
    }
    atexit(remove_base);
    snprintf(place_in, sizeof place_in, "%s/in", base);
    snprintf(place_out, sizeof place_out, "%s/out", base);
    snprintf(sub, sizeof sub, "%s/sub", place_in);
}

void place_fill(const uint8_t *input, size_t nbytes) {
    struct piece pieces[NPIECES_MAX];
    size_t npieces = pieces_read(input, nbytes, pieces);
    if (mkdir(place_in, 0777) || mkdir(sub, 0777)) {
        perror(place_in);
        exit(1);
    }
    for (size_t i = 0; i < npieces; i++)
        piece_put(&pieces[i], place_in);
}

void place_clear(void) {
    remove_tree(place_in);
    remove_tree(place_out);
}

void place_check(bool has_out) {
    DIR *dir = opendir(base);
    size_t count = 0;
    REQUIRE(dir);
    for (const struct dirent *e; (e = readdir(dir));)
        count += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
    closedir(dir);
    REQUIRE(count == 1 + (size_t)has_out);
    REQUIRE((access(place_out, F_OK) == 0) == has_out);
}

binade_status check_refusal(binade_status status, const binade_error *err) {
    bool is_full = status == BINADE_E_IO && strstr(err->message, " are free where ");
    REQUIRE(status == BINADE_OK || status == BINADE_E_DATA || status == BINADE_E_USAGE ||
            status == BINADE_E_CANCELLED || is_full);
    REQUIRE(status == BINADE_OK || is_sentence(err->message));
    return status;
}

int stop_if_large(void *user, const binade_event *event) {
    (void)user;
    return event->kind == BINADE_EVENT_PROGRESS && event->total > TOTAL_MAX_NBYTES;
}

binade_status place_verify(const char *packed, const char *against, unsigned nthreads) {
    binade_error err = {""};
    binade_verify_options options = {
        .size = sizeof options, .against = against, .nthreads = nthreads, .event = stop_if_large};
    return check_refusal(binade_verify(packed, &options, NULL, &err), &err);
}
