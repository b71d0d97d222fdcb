/* r4_gpu_layout.h - where R4 on a GPU puts a weight. docs/R4.md draws it.
 *
 * Includes nothing, so that C, nvcc and NVRTC all take it.
 *
 * A row of K columns is ceil(K / 128) slices. Lane t (0..31) of the warp that multiplies a row owns
 * four weights of each slice, those that MLX's matvec gives it. Position p of a row is lane
 * p / 4 % 32, weight p % 4, of slice p / 128; columns and positions differ within a slice only.
 * Four slices are a group; the K / 128 % 4 last slices of a row lie singly.
 */
#ifndef BINADE_CUDA_R4_GPU_LAYOUT_H
#define BINADE_CUDA_R4_GPU_LAYOUT_H

#if defined(__CUDACC__)
#define R4_GPU_FN static __host__ __device__ __forceinline__
#else
#define R4_GPU_FN static inline
#endif

enum {
    R4_SLICE_NCOLS = 128,
    R4_SLICE_NBYTES = 192,
    R4_GROUP_NSLICES = 4,
    R4_GROUP_NCOLS = 512,
    R4_GROUP_NBYTES = 768,
    R4_SPAN_NCOLS = 1024,
    R4_SPAN_NBYTES = 1536,
    /* Spans that a warp keeps in shared memory, as measured on an H200, where that leaves room for
     * 32 warps up to K = 20,992. */
    R4_MATVEC_NSTAGES = 3,
    R4_GATHER_NSTAGES = 2,
    R4_SLICE_CODES_AT = 128, /* byte of a slice, and of a group, where codes begin */
    R4_GROUP_CODES_AT = 512,
    R4_CODE_ESCAPE = 15,
    R4_BASE_MOST = 240,     /* base + 15 is an exponent still */
    R4_COLS_MOST = 1 << 24, /* positions have 24 bits in an escape */
    R4_REBUILD_NGROUPS = 4, /* groups that a warp rebuilds of a whole weight */
    R4_ROWS_NGROUPS = 1,    /* and of single rows */
    R4_LOAD_NWARPS = 8,     /* rows that a block loads */
    R4_KEPT = 16,           /* escapes of a row that loading keeps between its passes */
};

/* What is told of a row: where its escapes begin, and which spans, of 1,024 positions, have any:
 * bit span >> r4_mask_shift(K). */
struct r4_row {
    unsigned escape_start, span_mask;
};

/* Elements a lane takes at once in MLX's matvec, if its pointers are aligned. */
R4_GPU_FN unsigned r4_per_lane(unsigned ncols) {
    return ncols % 128 == 0 ? 4 : ncols % 64 == 0 ? 2 : 1;
}

R4_GPU_FN unsigned r4_nslices(unsigned ncols) {
    return (ncols + R4_SLICE_NCOLS - 1) / R4_SLICE_NCOLS;
}

R4_GPU_FN unsigned r4_ngroups(unsigned ncols) {
    return (ncols + R4_GROUP_NCOLS - 1) / R4_GROUP_NCOLS;
}

/* Slices of group g. */
R4_GPU_FN unsigned r4_group_nslices(unsigned ncols, unsigned g) {
    unsigned nleft = r4_nslices(ncols) - g * R4_GROUP_NSLICES;
    return nleft < R4_GROUP_NSLICES ? nleft : (unsigned)R4_GROUP_NSLICES;
}

R4_GPU_FN unsigned r4_mask_shift(unsigned ncols) {
    unsigned shift = 0;
    while ((ncols - 1) / R4_SPAN_NCOLS >> shift > 31)
        shift++;
    return shift;
}

/* The column at a position; it may be >= K in the last slice. per_lane: 4, 2 or 1, the power of 2
 * of which is per_lane >> 1. */
R4_GPU_FN unsigned r4_column(unsigned position, unsigned per_lane) {
    unsigned lane = position / 4 % 32, q = position % 4, power = per_lane >> 1;
    return position / 128 * 128 + (q >> power << (5 + power)) + (lane << power) +
           (q & (per_lane - 1));
}

/* The position of a column, the other way round. */
R4_GPU_FN unsigned r4_position(unsigned column, unsigned per_lane) {
    unsigned power = per_lane >> 1, lane = column >> power & 31;
    unsigned q = (column % 128 >> (5 + power) << power) + (column & (per_lane - 1));
    return column / 128 * 128 + lane * 4 + q;
}

/* Four raw bytes as the word of a lane: bytes in the order 0, 2, 1, 3, then the signs of
 * neighbours swapped. So weights 0 and 1 have sign and mantissa where two BF16 in a word have
 * them, and so do 2 and 3 once the bytes of each half are swapped. */
R4_GPU_FN unsigned r4_pack_raw(unsigned r0, unsigned r1, unsigned r2, unsigned r3) {
    unsigned word = r0 | r2 << 8 | r1 << 16 | r3 << 24;
    return (word & 0x7f7f7f7fu) | (word & 0x00800080u) << 8 | (word & 0x80008000u) >> 8;
}

/* Four codes as 16 bits: those of weights 0 and 2 in the low byte, 1 and 3 in the high one. */
R4_GPU_FN unsigned r4_pack_codes(unsigned c0, unsigned c1, unsigned c2, unsigned c3) {
    return c0 | c2 << 4 | c1 << 8 | c3 << 12;
}

/* The codes of two slices as a word: rotated right by 4 p, it has the codes of pair p (0..3) at
 * bits 7 and 23, where BF16 exponents begin. */
R4_GPU_FN unsigned r4_join_codes(unsigned first, unsigned second) {
    unsigned a = (first & 0xff) << 7 | (first >> 8) << 23;
    unsigned b = (second & 0xff) << 7 | (second >> 8) << 23;
    return a | b << 8 | b >> 24;
}

/* An escape: position << 8 | exponent. */
R4_GPU_FN unsigned r4_escape(unsigned position, unsigned exponent) {
    return position << 8 | exponent;
}

R4_GPU_FN unsigned r4_escape_group(unsigned escape) {
    return escape >> 17;
}

#endif
