#include "cuda/r4_launch.cuh"

#include "cuda/r4_kernels.cu"

/* Of the device that was current first. */
struct device_facts {
    int nprocessors, shared_most;
};

static const device_facts &facts() {
    static const device_facts known = [] {
        device_facts f = {1, 0};
        int device = 0;
        cudaGetDevice(&device);
        cudaDeviceGetAttribute(&f.nprocessors, cudaDevAttrMultiProcessorCount, device);
        cudaDeviceGetAttribute(&f.shared_most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
        cudaFuncSetAttribute(binade_r4_matvec, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             f.shared_most);
        return f;
    }();
    return known;
}

static size_t matvec_shared_nbytes(unsigned ncols, unsigned nthreads) {
    return (size_t)r4_ngroups(ncols) * R4_GROUP_NCOLS * 4 + nthreads / 32 * R4_RING_NBYTES;
}

unsigned r4_matvec_nthreads(unsigned ncols) {
    unsigned nthreads = 1024;
    while (nthreads > 64 && matvec_shared_nbytes(ncols, nthreads) > (size_t)facts().shared_most)
        nthreads /= 2;
    return nthreads > 64 ? nthreads : 0;
}

cudaError_t r4_gpu_matvec(const r4_gpu &w, const uint16_t *x, uint16_t *y, cudaStream_t stream,
                          unsigned nthreads) {
    unsigned most = r4_matvec_nthreads(w.ncols);
    if (nthreads == 0) nthreads = most;
    if (most == 0 || nthreads > most) return cudaErrorInvalidValue;

    size_t shared_nbytes = matvec_shared_nbytes(w.ncols, nthreads);
    unsigned nprocessors = facts().nprocessors, nwarps = nthreads / 32;
    unsigned nblocks = nprocessors;
    if (nthreads < 1024) { /* several may be resident */
        int nresident = 1;
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&nresident, binade_r4_matvec, nthreads,
                                                      shared_nbytes);
        unsigned nneeded = (w.nrows + nprocessors * nwarps - 1) / (nprocessors * nwarps);
        nblocks *= nneeded < (unsigned)nresident ? nneeded : nresident;
    }
    if (nblocks > w.nrows) nblocks = w.nrows;
    binade_r4_matvec<<<nblocks, nthreads, shared_nbytes, stream>>>(
        w.slices, w.rows, w.escapes, x, y, w.nrows, w.ncols, w.per_lane, w.base);
    return cudaGetLastError();
}

cudaError_t r4_gpu_rebuild(const r4_gpu &w, unsigned row0, unsigned taken, unsigned block_nrows,
                           uint16_t *out, cudaStream_t stream) {
    unsigned nout = w.nrows / block_nrows * taken;
    unsigned nspans = (r4_ngroups(w.ncols) + R4_REBUILD_NGROUPS - 1) / R4_REBUILD_NGROUPS;
    size_t nblocks = ((size_t)nout * nspans + 7) / 8;
    if (nout == 0) return cudaSuccess;
    binade_r4_rebuild<<<(unsigned)nblocks, 256, 0, stream>>>(w.slices, w.rows, w.escapes, out, nout,
                                                             w.ncols, w.per_lane, w.base, row0,
                                                             taken, block_nrows);
    return cudaGetLastError();
}

static r4_transcode_job make_job(const r4_gpu &w, unsigned *kept, unsigned *faults) {
    return {w.nrows, w.ncols, w.per_lane, w.base, w.slices, w.rows, kept, w.escapes, faults};
}

static unsigned count_transcode_blocks(const r4_gpu &w) {
    return (w.nrows + R4_TRANSCODE_NWARPS - 1) / R4_TRANSCODE_NWARPS;
}

static void scan_escapes(const r4_gpu &w, cudaStream_t stream) {
    binade_r4_scan<<<1, 1024, 0, stream>>>(&w.rows->escape_start, 2, w.nrows);
}

cudaError_t r4_gpu_from_rice(const r4_gpu &w, const r4_rice_source &source, unsigned *kept,
                             unsigned *faults, int step, cudaStream_t stream) {
    r4_transcode_job job = make_job(w, kept, faults);
    unsigned nblocks = count_transcode_blocks(w);
    if (step == 1) {
        binade_r4_from_rice_1<<<nblocks, 256, 0, stream>>>(source, job);
        scan_escapes(w, stream);
    } else {
        binade_r4_from_rice_2<<<nblocks, 256, 0, stream>>>(source, job);
    }
    return cudaGetLastError();
}

cudaError_t r4_gpu_from_fixed(const r4_gpu &w, const r4_fixed_source &source, unsigned *kept,
                              unsigned *faults, int step, cudaStream_t stream) {
    r4_transcode_job job = make_job(w, kept, faults);
    unsigned nblocks = count_transcode_blocks(w);
    if (step == 1) {
        binade_r4_fixed_measure<<<nblocks, 256, 0, stream>>>(source, job);
        binade_r4_scan<<<1, 1024, 0, stream>>>(source.code_starts, 1, w.nrows);
        binade_r4_fixed_count<<<nblocks, 256, 0, stream>>>(source, job);
        binade_r4_scan<<<1, 1024, 0, stream>>>(source.escape_starts, 1, w.nrows);
        binade_r4_from_fixed_1<<<nblocks, 256, 0, stream>>>(source, job);
        scan_escapes(w, stream);
    } else {
        binade_r4_from_fixed_2<<<nblocks, 256, 0, stream>>>(source, job);
    }
    return cudaGetLastError();
}

cudaError_t r4_gpu_from_bf16(const r4_gpu &w, const uint16_t *bf16, unsigned *kept, int step,
                             cudaStream_t stream) {
    r4_transcode_job job = make_job(w, kept, NULL);
    unsigned nblocks = count_transcode_blocks(w);
    if (step == 1) {
        binade_r4_from_bf16_1<<<nblocks, 256, 0, stream>>>({bf16}, job);
        scan_escapes(w, stream);
    } else {
        binade_r4_from_bf16_2<<<nblocks, 256, 0, stream>>>({bf16}, job);
    }
    return cudaGetLastError();
}
