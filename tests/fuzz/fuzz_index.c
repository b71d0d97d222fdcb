/* fuzz_index.c - any bytes as a model.safetensors.index.json. What is accepted names shards inside
 * the directory, sorted, each once; what is refused leaves one sentence. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/file.h"
#include "io/checkpoint_dir.h"
#include "io/json_reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t nbytes);

#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "line %d: not so: %s\n", __LINE__, #condition);                        \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static void check_shards(const struct path_list *shards) {
    for (size_t i = 0; i < shards->count; i++) {
        const char *path = shards->paths[i];
        size_t length = strlen(path);
        REQUIRE(path_is_inside(path, length) && utf8_valid(path, length));
        REQUIRE(length >= 12 && strcmp(path + length - 12, ".safetensors") == 0);
        REQUIRE(i == 0 || strcmp(shards->paths[i - 1], path) < 0);
        REQUIRE(path_list_has(shards, path));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t nbytes) {
    /* No byte to spare behind the text. */
    char *text = malloc(nbytes ? nbytes : 1);
    if (!text) return 0;
    if (nbytes) memcpy(text, input, nbytes);
    struct path_list shards;
    struct json_reader r;
    binade_error err = {""};
    binade_status status = index_list_shards(text, nbytes, "i.json", &shards, &err);
    /* A second opinion, with the code that steps over values. */
    json_open(&r, text, nbytes, "i.json", NULL);
    bool is_json = json_skip(&r, NULL, NULL) && json_end(&r);
    REQUIRE((json_close(&r) == BINADE_OK) == is_json);
    free(text);
    if (status == BINADE_OK) {
        REQUIRE(is_json);
        check_shards(&shards);
    } else {
        REQUIRE(status == BINADE_E_DATA && !shards.paths);
        REQUIRE(strncmp(err.message, "i.json: ", 8) == 0 && !strchr(err.message, '\n'));
        REQUIRE(utf8_valid(err.message, strlen(err.message)));
    }
    path_list_free(&shards);
    return 0;
}
