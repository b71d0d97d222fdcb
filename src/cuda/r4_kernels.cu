/* r4_kernels.cu - the entry points of R4 on a GPU. Includes device headers only, so that NVRTC
 * takes it too. */
#include "cuda/r4_matvec.cuh"
#include "cuda/r4_rebuild.cuh"
#include "cuda/r4_transcode.cuh"

extern "C" __global__ void __launch_bounds__(1024)
    binade_r4_matvec(const unsigned char *slices, const r4_row *rows, const unsigned *escapes,
                     const unsigned short *x, unsigned short *y, unsigned nrows, unsigned ncols,
                     unsigned per_lane, unsigned base) {
    extern __shared__ __align__(16) float xs[];
    r4_matvec(slices, rows, escapes, x, y, nrows, ncols, per_lane, base, xs);
}

extern "C" __global__ void __launch_bounds__(256)
    binade_r4_rebuild(const unsigned char *slices, const r4_row *rows, const unsigned *escapes,
                      unsigned short *out, unsigned nout, unsigned ncols, unsigned per_lane,
                      unsigned base, unsigned row0, unsigned taken, unsigned block_nrows) {
    r4_rebuild(slices, rows, escapes, out, nout, ncols, per_lane, base, row0, taken, block_nrows);
}

/* ---- Load: blocks of 256, a warp for a row ----------------------------------------------------
 */

template <int PASS, class Transcode>
static __device__ __forceinline__ void transcode(const r4_transcode_job &job, Transcode row) {
    if (PASS == 1)
        r4_transcode_pass1(job, row);
    else
        r4_transcode_pass2(job, row);
}

/* TRANSCODE_ROW(source, job, row, lane, table, exponents, sink): of a source with a table. */
#define R4_LOAD(NAME, SOURCE, TRANSCODE_ROW, PASS)                                                 \
    extern "C" __global__ void __launch_bounds__(256) NAME(SOURCE source, r4_transcode_job job) {  \
        __shared__ unsigned char table[256], exponents[R4_TRANSCODE_NWARPS][128];                  \
        table[threadIdx.x] = source.table[threadIdx.x];                                            \
        __syncthreads();                                                                           \
        transcode<PASS>(job, [&](unsigned row, unsigned lane, r4_sink &sink) {                     \
            TRANSCODE_ROW(source, job, row, lane, table, exponents[threadIdx.x / 32], sink);       \
        });                                                                                        \
    }

R4_LOAD(binade_r4_from_rice_1, r4_rice_source, r4_transcode_rice_row, 1)
R4_LOAD(binade_r4_from_rice_2, r4_rice_source, r4_transcode_rice_row, 2)
R4_LOAD(binade_r4_from_fixed_1, r4_fixed_source, r4_transcode_fixed_row, 1)
R4_LOAD(binade_r4_from_fixed_2, r4_fixed_source, r4_transcode_fixed_row, 2)

extern "C" __global__ void __launch_bounds__(256)
    binade_r4_fixed_measure(r4_fixed_source source, r4_transcode_job job) {
    r4_fixed_measure(source, job);
}

extern "C" __global__ void __launch_bounds__(256)
    binade_r4_fixed_count(r4_fixed_source source, r4_transcode_job job) {
    r4_fixed_count(source, job);
}

#define R4_MAKE(PASS)                                                                              \
    extern "C" __global__ void __launch_bounds__(256)                                              \
        binade_r4_from_bf16_##PASS(r4_bf16_source source, r4_transcode_job job) {                  \
        transcode<PASS>(job, [&](unsigned row, unsigned lane, r4_sink &sink) {                     \
            r4_transcode_bf16_row(source, job, row, lane, sink);                                   \
        });                                                                                        \
    }

R4_MAKE(1)
R4_MAKE(2)

extern "C" __global__ void __launch_bounds__(1024)
    binade_r4_scan(unsigned *values, unsigned step, unsigned n) {
    r4_scan(values, step, n);
}
