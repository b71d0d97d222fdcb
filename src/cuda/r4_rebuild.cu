/* r4_rebuild.cu - out[b * taken + i] = row b * block_nrows + row0 + i of W, i < taken, for the
 * nout / taken blocks, as BF16. out is 16-byte aligned. */
#include "cuda/r4_rebuild.cuh"

extern "C" __global__ void __launch_bounds__(256)
    binade_r4_rebuild(const unsigned char *slices, const r4_row *rows, const unsigned *escapes,
                      unsigned short *out, int nout, int ncols, int per_lane, int base, int row0,
                      int taken, int block_nrows) {
    const r4_rebuild_item item = r4_find_rebuild_item<R4_REBUILD_NGROUPS>((unsigned)ncols);
    if (item.o >= (unsigned)nout) return;
    const size_t block = item.o / (unsigned)taken, i = item.o % (unsigned)taken;
    r4_rebuild_groups<R4_REBUILD_NGROUPS>(slices, rows, escapes,
                                          block * (unsigned)block_nrows + (unsigned)row0 + i,
                                          out + item.o * (unsigned)ncols, (unsigned)ncols,
                                          (unsigned)per_lane, (unsigned)base, item.g0);
}
