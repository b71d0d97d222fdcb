/* r4_rows.cu - out[i] = row row0 + ids[i] of W as BF16, ids[i] < nrows: what an embedding gives.
 * Signed ids below 0 count from the end; one out of range gives NaN. out is 16-byte aligned.
 */
#include "cuda/r4_rebuild.cuh"

/* The row of an id; nrows if there is none. */
static __device__ __forceinline__ unsigned long long
r4_read_id(const void *ids, size_t i, unsigned nrows, int nbytes, bool is_signed) {
    long long id = nbytes == 8 ? ((const long long *)ids)[i]
                   : is_signed ? ((const int *)ids)[i]
                               : (long long)((const unsigned *)ids)[i];
    if (is_signed && id < 0) id += nrows;
    return (unsigned long long)id < nrows ? (unsigned long long)id : nrows;
}

extern "C" __global__ void __launch_bounds__(256)
    binade_r4_rows(const unsigned char *slices, const r4_row *rows, const unsigned *escapes,
                   const void *ids, unsigned short *out, int nids, int row0, int nrows, int ncols,
                   int per_lane, int base, int id_nbytes, bool id_is_signed) {
    const r4_rebuild_item item = r4_find_rebuild_item<R4_ROWS_NGROUPS>((unsigned)ncols);
    if (item.o >= (unsigned)nids) return;
    const unsigned long long row =
        r4_read_id(ids, item.o, (unsigned)nrows, id_nbytes, id_is_signed);
    out += item.o * (unsigned)ncols;
    if (row == (unsigned)nrows)
        return r4_rebuild_nan<R4_ROWS_NGROUPS>(out, (unsigned)ncols, item.g0);
    r4_rebuild_groups<R4_ROWS_NGROUPS>(slices, rows, escapes, (unsigned)row0 + row, out,
                                       (unsigned)ncols, (unsigned)per_lane, (unsigned)base,
                                       item.g0);
}
