/* metal_kernels.h - the kernels for Apple GPUs: of which files each consists and what it takes.
 *
 * A kernel is a body, src/metal/bodies/NAME.metal, which MLX's metal_kernel puts into a function
 * with the inputs and outputs listed here, behind the texts of its headers in the order listed.
 * Paths are relative to src/.
 *
 * MLX gives what has fewer than 8 elements in the address space `constant`, all else in `device`.
 * Of an input that is FEW the kernel expects it, MANY is never so small, and ANY may be either.
 */
#ifndef BINADE_METAL_METAL_KERNELS_H
#define BINADE_METAL_METAL_KERNELS_H

#ifdef __cplusplus
extern "C" {
#endif

enum { METAL_NARRAYS = 18, METAL_NHEADERS = 6, METAL_NPARAMETERS = 6 };

enum metal_size { METAL_MANY, METAL_FEW, METAL_ANY };

/* dtype: as MLX names it; ANY_INT: an integer of 32 or 64 bits. */
struct metal_array {
    const char *name, *dtype;
    enum metal_size size;
};

struct metal_kernel {
    const char *name;
    const char *headers[METAL_NHEADERS + 1];                                  /* up to NULL */
    struct metal_array inputs[METAL_NARRAYS + 1], outputs[METAL_NARRAYS + 1]; /* up to no name */
    const char *parameters[METAL_NPARAMETERS + 1]; /* of its template, up to NULL; int but BIAS */
};

extern const struct metal_kernel metal_kernels[];
extern const int metal_nkernels;

/* NULL if there is none. */
const struct metal_kernel *metal_find_kernel(const char *name);

#ifdef __cplusplus
}
#endif
#endif
