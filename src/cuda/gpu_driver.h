/* gpu_driver.h - what is asked of NVIDIA's driver and run-time compiler, both of which MLX has
 * loaded already. They are found at run time, so that one build serves machines without them. */
#ifndef BINADE_CUDA_GPU_DRIVER_H
#define BINADE_CUDA_GPU_DRIVER_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    GPU_MESSAGE_NBYTES = 2048,
    GPU_NDEFINES_MOST = 4,       /* of a kernel; r4_gemm.cu has three */
    GPU_DEFINE_NBYTES_MOST = 60, /* of each, without a terminating 0 */
};

struct gpu_facts {
    int major, minor; /* compute capability */
    int nprocessors;
    int shared_most; /* bytes of shared memory that a block can opt in to */
};

/* Facts of a CUDA device. Returns 0, or -1 with a sentence in `message`. */
int gpu_query(int device, struct gpu_facts *facts, char message[GPU_MESSAGE_NBYTES]);

/* Device code: names as in #include, and texts. */
struct gpu_sources {
    const char *const *names, *const *texts;
    int count;
};

/* The text of a file; NULL if it is none of the sources. */
const char *gpu_find_source(const struct gpu_sources *sources, const char *file);

/* Compiles one of the sources, such as "cuda/r4_matvec.cu", for a compute capability. `defines`:
 * "", or "NAME=VALUE" up to GPU_NDEFINES_MOST times, with a space between. *image is malloc'd
 * machine code. Returns 0, or -1 with a sentence in `message` and nothing else written. */
int gpu_compile(const struct gpu_sources *sources, const char *file, const char *defines, int major,
                int minor, char **image, size_t *image_nbytes, char message[GPU_MESSAGE_NBYTES]);

/* The version of the compiler, as in 13.0. Returns 0, and both are 0, where there is none. */
int gpu_compiler_version(int *major, int *minor);

#ifdef __cplusplus
}
#endif
#endif
