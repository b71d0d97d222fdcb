/* read_tensor.c - prints the first weights of a BF16 tensor: read_tensor CHECKPOINT TENSOR */
#include <binade.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    binade_error err = {"usage: read_tensor CHECKPOINT TENSOR"};
    binade_checkpoint *c = NULL;
    binade_tensor tensor;
    uint16_t row[1 << 16] = {0}; /* a BF16 is the upper half of a float */

    binade_status status = argc == 3 ? binade_open(argv[1], NULL, &c, &err) : BINADE_E_USAGE;
    if (status) return fprintf(stderr, "%s\n", err.message), 1;
    size_t i = binade_find(c, argv[2], strlen(argv[2]));
    if (i == SIZE_MAX) return fprintf(stderr, "there is no tensor %s\n", argv[2]), 1;
    binade_get(c, i, &tensor);
    if (strcmp(tensor.dtype, "BF16") != 0)
        return fprintf(stderr, "%s is %s, not BF16\n", argv[2], tensor.dtype), 1;
    status = binade_read_rows(c, i, 0, 1, row, sizeof row, &err);
    if (status) return fprintf(stderr, "%s\n", err.message), 1;
    for (size_t col = 0; col < 4 && col < tensor.cols; col++) {
        uint32_t bits = (uint32_t)row[col] << 16;
        float weight;
        memcpy(&weight, &bits, sizeof weight);
        printf("%g\n", weight);
    }
    binade_close(c);
    return 0;
}
