/* Arguments go as MLX passes them: arrays that are read, arrays that are written, numbers. */
#include "cuda/r4_launch.cuh"

#include <cstring>
#include <mutex>
#include <vector>

#include "cuda/r4_launch_normed.h"

#define R4_NPARTS 1
#include "cuda/r4_gather.cu"
#include "cuda/r4_matvec.cu"
#include "cuda/r4_matvec_fused.cu"
#undef R4_NPARTS
#define R4_NPARTS 2
#include "cuda/r4_gather.cu"
#include "cuda/r4_gather_gated.cu"
#include "cuda/r4_matvec.cu"
#include "cuda/r4_matvec_fused.cu"
#undef R4_NPARTS
#define R4_NPARTS 3
#include "cuda/r4_matvec.cu"
#undef R4_NPARTS
#define R4_PASS 1
#include "cuda/r4_from_bf16.cu"
#include "cuda/r4_from_fixed.cu"
#include "cuda/r4_from_rice.cu"
#include "cuda/r4_measure_fixed.cu"
#undef R4_PASS
#define R4_PASS 2
#include "cuda/r4_from_bf16.cu"
#include "cuda/r4_from_fixed.cu"
#include "cuda/r4_from_rice.cu"
#include "cuda/r4_measure_fixed.cu"
#undef R4_PASS
#include "cuda/r4_count.cu"
#include "cuda/r4_gather_any.cu"
#include "cuda/r4_matvec_any.cu"
#include "cuda/r4_rebuild.cu"
#include "cuda/r4_rows.cu"
#include "cuda/r4_scan.cu"

/* Those that stage x. */
enum { MATVEC = 0, GATHER = 3, ADDED = 5, GATED, GATHER_GATED };
static const void *const staging[] = {
    R4_ENTRY(binade_r4_matvec_1),     R4_ENTRY(binade_r4_matvec_2),
    R4_ENTRY(binade_r4_matvec_3),     R4_ENTRY(binade_r4_gather_1),
    R4_ENTRY(binade_r4_gather_2),     R4_ENTRY(binade_r4_matvec_added),
    R4_ENTRY(binade_r4_matvec_gated), R4_ENTRY(binade_r4_gather_gated)};

static r4_device read_device(int number) {
    int nprocessors = 1, shared_most = 0;
    cudaDeviceGetAttribute(&nprocessors, cudaDevAttrMultiProcessorCount, number);
    cudaDeviceGetAttribute(&shared_most, cudaDevAttrMaxSharedMemoryPerBlockOptin, number);
    for (const void *kernel : staging)
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_most);
    for (const void *kernel : r4_normed_kernels)
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_most);
    return {(unsigned)nprocessors, (unsigned)shared_most};
}

const r4_device &r4_gpu_device() {
    static std::mutex mutex;
    static std::vector<r4_device *> known; /* by number; none moves or goes */
    std::lock_guard<std::mutex> lock(mutex);
    int number = 0;
    cudaGetDevice(&number);
    if ((size_t)number >= known.size()) known.resize((size_t)number + 1);
    if (!known[(size_t)number]) known[(size_t)number] = new r4_device(read_device(number));
    return *known[(size_t)number];
}

/* ---- Arguments --------------------------------------------------------------------------------
 */

struct arguments {
    std::vector<uint64_t> values; /* pointers, or an int or a bool in the low bytes */

    arguments &add(const void *pointer) {
        values.push_back((uint64_t)pointer);
        return *this;
    }
    arguments &add(unsigned number) {
        values.push_back(number);
        return *this;
    }
    arguments &add(float number) {
        unsigned bits;
        memcpy(&bits, &number, sizeof bits);
        return add(bits);
    }
    arguments &add(const r4_gpu &w) { return add(w.slices).add(w.rows).add(w.escapes); }

    cudaError_t launch(const void *kernel, const r4_grid &grid, cudaStream_t stream) {
        std::vector<void *> pointers;
        for (uint64_t &value : values)
            pointers.push_back(&value);
        return cudaLaunchKernel(kernel, dim3(grid.nblocks), dim3(grid.nthreads), pointers.data(),
                                grid.shared_nbytes, stream);
    }
};

/* ---- Products -------------------------------------------------------------------------------- */

static const void *choose_matvec(unsigned nparts, const r4_fused &fused) {
    if (fused.norm) return r4_normed_kernels[fused.act ? R4_GATED_NORMED : nparts - 1];
    return staging[fused.added ? ADDED : fused.act ? GATED : MATVEC + nparts - 1];
}

cudaError_t r4_gpu_matvec(const r4_view *parts, unsigned nparts, const uint16_t *x,
                          cudaStream_t stream, unsigned nthreads, const r4_fused &fused) {
    const r4_gpu &w = parts[0].w;
    unsigned nouts = fused.act ? 1 : nparts;
    arguments a;
    r4_grid grid;
    size_t nrows = 0;

    for (unsigned i = 0; i < nparts; i++)
        nrows += parts[i].taken;
    if (!r4_matvec_grid(&r4_gpu_device(), w.ncols, nrows, &grid)) return cudaErrorInvalidValue;
    if (nthreads > grid.nthreads) return cudaErrorInvalidValue;
    if (nthreads > 0) grid.nthreads = nthreads;
    for (unsigned i = 0; i < nparts; i++)
        a.add(parts[i].w);
    a.add(x);
    for (const uint16_t *array : {fused.added, fused.act, fused.norm})
        if (array) a.add(array);
    for (unsigned i = 0; i < nouts; i++)
        a.add(parts[i].y);
    a.add(w.ncols).add(w.per_lane);
    for (unsigned i = 0; i < nparts; i++)
        a.add(parts[i].row0).add(parts[i].taken).add(parts[i].w.base);
    if (fused.norm) a.add(fused.eps);
    return a.launch(choose_matvec(nparts, fused), grid, stream);
}

cudaError_t r4_gpu_matvec_any(const r4_view &part, const uint16_t *x, unsigned n,
                              cudaStream_t stream) {
    arguments a;
    r4_grid grid;
    if (!r4_matvec_any_grid(part.taken, &grid)) return cudaErrorInvalidValue;
    a.add(part.w).add(x).add(part.y).add(part.w.ncols).add(part.w.per_lane);
    a.add(part.row0).add(part.taken).add(part.w.base).add(n);
    return a.launch(R4_ENTRY(binade_r4_matvec_any), grid, stream);
}

static arguments &add_items(arguments &a, const r4_items &items, const r4_gpu &w) {
    a.add(items.n).add(items.nx).add(items.items_per_x).add(items.nexperts);
    return a.add(w.ncols).add(w.per_lane);
}

static arguments &add_experts(arguments &a, const r4_view &part) {
    return a.add(part.row0).add(part.taken).add(part.block_nrows).add(part.w.base);
}

cudaError_t r4_gpu_gather(const r4_view *parts, unsigned nparts, const r4_items &items,
                          cudaStream_t stream, unsigned nblocks, const uint16_t *act) {
    const r4_gpu &w = parts[0].w;
    unsigned nouts = act ? 1 : nparts;
    arguments a;
    r4_grid grid;
    size_t taken = 0;

    for (unsigned i = 0; i < nouts; i++)
        taken += parts[i].taken;
    if (!r4_gather_grid(&r4_gpu_device(), w.ncols, items.n, taken, &grid))
        return cudaErrorInvalidValue;
    if (nblocks > grid.nblocks && nblocks <= taken * items.n) grid.nblocks = nblocks;
    for (unsigned i = 0; i < nparts; i++)
        a.add(parts[i].w);
    a.add(items.x).add(items.lhs).add(items.rhs);
    if (act) a.add(act);
    for (unsigned i = 0; i < nouts; i++)
        a.add(parts[i].y);
    add_items(a, items, w);
    for (unsigned i = 0; i < nparts; i++)
        add_experts(a, parts[i]);
    return a.launch(staging[act ? GATHER_GATED : GATHER + nparts - 1], grid, stream);
}

cudaError_t r4_gpu_gather_any(const r4_view &part, const r4_items &items, unsigned n,
                              cudaStream_t stream) {
    arguments a;
    r4_grid grid;
    if (!r4_matvec_any_grid((size_t)items.n * part.taken, &grid)) return cudaErrorInvalidValue;
    a.add(part.w).add(items.x).add(items.lhs).add(items.rhs).add(part.y);
    add_experts(add_items(a, items, part.w), part).add(n);
    return a.launch(R4_ENTRY(binade_r4_gather_any), grid, stream);
}

/* ---- BF16 ------------------------------------------------------------------------------------ */

cudaError_t r4_gpu_rebuild(const r4_view &part, uint16_t *out, cudaStream_t stream) {
    unsigned nout = part.w.nrows / part.block_nrows * part.taken;
    arguments a;
    r4_grid grid;
    if (!r4_rebuild_grid(part.w.ncols, nout, &grid)) return cudaErrorInvalidValue;
    a.add(part.w).add(out).add(nout).add(part.w.ncols).add(part.w.per_lane).add(part.w.base);
    a.add(part.row0).add(part.taken).add(part.block_nrows);
    return a.launch(R4_ENTRY(binade_r4_rebuild), grid, stream);
}

cudaError_t r4_gpu_rows(const r4_view &part, const void *ids, unsigned nids, unsigned id_nbytes,
                        bool is_signed, uint16_t *out, cudaStream_t stream) {
    arguments a;
    r4_grid grid;
    if (!r4_rows_grid(part.w.ncols, nids, &grid)) return cudaErrorInvalidValue;
    a.add(part.w).add(ids).add(out).add(nids).add(part.row0).add(part.taken).add(part.w.ncols);
    a.add(part.w.per_lane).add(part.w.base).add(id_nbytes).add((unsigned)is_signed);
    return a.launch(R4_ENTRY(binade_r4_rows), grid, stream);
}

/* ---- Loading --------------------------------------------------------------------------------- */

static cudaError_t scan(const unsigned *counts, unsigned *sums, unsigned n, unsigned width,
                        cudaStream_t stream) {
    r4_grid grid;
    if (!r4_scan_grid(n, &grid)) return cudaErrorInvalidValue;
    return arguments().add(counts).add(sums).add(n).add(width).launch(R4_ENTRY(binade_r4_scan),
                                                                      grid, stream);
}

static arguments &add_shape(arguments &a, const r4_gpu &w) {
    return a.add(w.nrows).add(w.ncols).add(w.per_lane).add(w.base);
}

/* Launches a pass; after the first, counts become rows. */
static cudaError_t load(const void *kernel, arguments &a, const r4_gpu &w, const r4_scratch &s,
                        int step, cudaStream_t stream) {
    r4_grid grid;
    if (!r4_load_grid(w.nrows, &grid)) return cudaErrorInvalidValue;
    cudaError_t status = a.launch(kernel, grid, stream);
    if (status != cudaSuccess || step == 2) return status;
    return scan(s.counts, (unsigned *)w.rows, w.nrows, 2, stream);
}

cudaError_t r4_gpu_from_rice(const r4_gpu &w, const r4_rice_arrays &source, const r4_scratch &s,
                             int step, cudaStream_t stream) {
    arguments a;
    if (step == 1) a.add(source.raw);
    a.add(source.table).add(source.meta).add(source.bits).add(source.row_starts);
    if (step == 1)
        a.add(w.slices).add(s.counts).add(s.kept).add(s.faults);
    else
        a.add(w.rows).add(s.kept).add(w.escapes);
    add_shape(a, w).add(source.nwords);
    return load(step == 1 ? R4_ENTRY(binade_r4_from_rice_1) : R4_ENTRY(binade_r4_from_rice_2), a, w,
                s, step, stream);
}

/* Where the codes and the escapes of each row begin. */
static cudaError_t measure_fixed(const r4_gpu &w, const r4_fixed_arrays &source,
                                 const r4_scratch &s, cudaStream_t stream) {
    arguments widths, counts;
    r4_grid grid;
    if (!r4_load_grid(w.nrows, &grid)) return cudaErrorInvalidValue;
    widths.add(source.meta).add(s.found).add(w.nrows).add(w.ncols);
    cudaError_t status = widths.launch(R4_ENTRY(binade_r4_measure_fixed), grid, stream);
    if (status == cudaSuccess) status = scan(s.found, s.code_starts, w.nrows, 1, stream);
    counts.add(source.meta).add(source.idx).add(s.code_starts).add(s.found);
    counts.add(w.nrows).add(w.ncols).add(source.nwords);
    if (status == cudaSuccess)
        status = counts.launch(R4_ENTRY(binade_r4_count_fixed), grid, stream);
    if (status == cudaSuccess) status = scan(s.found, s.escape_starts, w.nrows, 1, stream);
    return status;
}

cudaError_t r4_gpu_from_fixed(const r4_gpu &w, const r4_fixed_arrays &source, const r4_scratch &s,
                              int step, cudaStream_t stream) {
    arguments a;
    if (step == 1) {
        cudaError_t status = measure_fixed(w, source, s, stream);
        if (status != cudaSuccess) return status;
        a.add(source.raw);
    }
    a.add(source.table).add(source.meta).add(source.idx).add(source.esc);
    a.add(s.code_starts).add(s.escape_starts);
    if (step == 1)
        a.add(w.slices).add(s.counts).add(s.kept).add(s.faults);
    else
        a.add(w.rows).add(s.kept).add(w.escapes);
    add_shape(a, w).add(source.nwords).add(source.nescapes);
    return load(step == 1 ? R4_ENTRY(binade_r4_from_fixed_1) : R4_ENTRY(binade_r4_from_fixed_2), a,
                w, s, step, stream);
}

cudaError_t r4_gpu_from_bf16(const r4_gpu &w, const uint16_t *bf16, const r4_scratch &s, int step,
                             cudaStream_t stream) {
    arguments a;
    a.add(bf16);
    if (step == 1)
        a.add(w.slices).add(s.counts).add(s.kept);
    else
        a.add(w.rows).add(s.kept).add(w.escapes);
    add_shape(a, w);
    return load(step == 1 ? R4_ENTRY(binade_r4_from_bf16_1) : R4_ENTRY(binade_r4_from_bf16_2), a, w,
                s, step, stream);
}

cudaError_t r4_gpu_count(const uint16_t *bf16, unsigned nrows, unsigned ncols, unsigned *counts,
                         cudaStream_t stream) {
    r4_grid grid;
    if (!r4_count_grid(&r4_gpu_device(), nrows, ncols, &grid)) return cudaErrorInvalidValue;
    return arguments().add(bf16).add(counts).add(nrows).add(ncols).launch(R4_ENTRY(binade_r4_count),
                                                                          grid, stream);
}
