/* r4_tile.metal - products of tiles by simdgroup matrices in the order of MLX's steel GEMM (mma.h
 * of MLX 0.32.2). Stands behind r4_share.metal.
 *
 * An output is one float32 accumulator that takes 8 columns after the other, x as the left matrix
 * and W as the right one, both widened to float32. Which columns come when is told by ranges.
 *
 * Split: a threadgroup of WM x WN simdgroups for BM rows of x and BN rows of W. It goes over W in
 * steps of 64 columns, half a slice, which are unpacked to threadgroup memory, x copied beside
 * them. Each simdgroup unpacks BN / (WM WN) whole rows, two at a time, as 16 lanes of the layout
 * have all of a step. Of two slices the bytes are loaded together, ahead of their use.
 */

/* 16 bytes more than a row, so that rows differ in banks. */
constant constexpr uint R4_STEP_NCOLS = 64, R4_TILE_LD = R4_STEP_NCOLS + 8;

template <int BM, int BN, int WM, int WN> struct r4_tile {
    enum {
        NSIMDS = WM * WN,
        NTHREADS = 32 * NSIMDS,
        MINE = BN / NSIMDS, /* rows of W that a simdgroup unpacks; at most 32 */
        TM = BM / (8 * WM), /* matrices of a simdgroup */
        TN = BN / (8 * WN),
    };
};

/* Where a thread stands. */
struct r4_place {
    uint simd, lane;
};

/* Threadgroup memory, 8-byte aligned: BM, and BN, rows of R4_TILE_LD. */
struct r4_staged {
    threadgroup bfloat *xs, *ws;
};

/* A lane's row and first of two columns in an 8 x 8 matrix. */
METAL_FUNC uint2 r4_matrix_place(uint lane) {
    uint quad = lane / 4;
    return uint2((quad & 4) + lane / 2 % 4, (quad & 2) * 2 + lane % 2 * 2);
}

/* ---- Staging ---------------------------------------------------------------------------------
 */

/* The rows of W of a tile: rows first .. first + nrows of the part's arrays; behind the last the
 * last again. */
struct r4_tile_rows {
    uint first, nrows, nslices, bases;
};

template <class T>
METAL_FUNC uint r4_tile_row(thread const r4_tile_rows &rows, r4_place at, uint i) {
    return rows.first + min(at.simd * T::MINE + i, rows.nrows - 1);
}

/* What this lane unpacks of two slices: of rows 2 j + lane / 16, number 2 j for the first step of a
 * slice, 2 j + 1 for the second. */
template <class T>
METAL_FUNC void r4_hold_twos(const thread r4_part &part, thread const r4_tile_rows &rows,
                             r4_place at, uint slice, thread r4_two *twos) {
    R4_UNROLL
    for (uint i = 0; i < T::MINE; i++) {
        uint mine = r4_tile_row<T>(rows, at, (i & ~1u) + at.lane / 16);
        const device uint *row = r4_row_at(part.slices, mine, rows.nslices);
        twos[i] = r4_read_two(row, slice & ~1u, rows.nslices, at.lane % 16 + 16 * (i & 1));
    }
}

METAL_FUNC uint r4_escape_step(uint escape) {
    return escape >> 14;
}

/* Lane i of a simdgroup keeps the escapes of its row i. */
template <class T>
METAL_FUNC r4_cursor r4_hold_escapes(const thread r4_part &part, thread const r4_tile_rows &rows,
                                     r4_place at, uint step) {
    r4_cursor escapes = {0, 0, ~0u};
    if (at.lane >= T::MINE) return escapes;
    escapes = r4_first_escape(part.rows, part.escapes, r4_tile_row<T>(rows, at, at.lane));
    while (escapes.next < escapes.end && r4_escape_step(escapes.escape) < step)
        r4_next_escape(part.escapes, escapes);
    return escapes;
}

/* Unpacks one step of this simdgroup's rows, the first of its slice or the SECOND. */
template <class T, uint SECOND>
METAL_FUNC void r4_stage_weights(const thread r4_part &part, uint bases, r4_place at, uint slice,
                                 const thread r4_two *twos, thread r4_cursor &escapes,
                                 threadgroup bfloat *ws) {
    threadgroup bfloat *rows = ws + at.simd * T::MINE * R4_TILE_LD;
    threadgroup bfloat *to = rows + at.lane / 16 * R4_TILE_LD + R4_LANE_NCOLS * (at.lane % 16);
    R4_UNROLL
    for (uint i = SECOND; i < T::MINE; i += 2) {
        r4_two two = twos[i];
        uint2 pairs = slice & 1 ? r4_unpack_second(two.raw1, two.codes, bases)
                                : r4_unpack(two.raw0, two.codes, bases);
        *(threadgroup uint2 *)(to + (i - SECOND) * R4_TILE_LD) = pairs;
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
    while (r4_escape_step(escapes.escape) == 2 * slice + SECOND) {
        threadgroup ushort *row = (threadgroup ushort *)(rows + at.lane * R4_TILE_LD);
        uint column = escapes.escape >> 8 & (R4_STEP_NCOLS - 1);
        row[column] = ushort((row[column] & 0x807f) | (escapes.escape & 0xff) << 7);
        r4_next_escape(part.escapes, escapes);
    }
}

/* Copies nrows rows of x from column0 on; 0 in missing rows and columns. */
template <class T, int BM, class X>
METAL_FUNC void r4_stage_x(X x, uint nrows, uint ncols, uint column0, r4_place at,
                           threadgroup bfloat *xs) {
    const uint thread_index = at.simd * 32 + at.lane;
    const uint within = R4_LANE_NCOLS * (thread_index % 16), column = column0 + within;

    for (uint row = thread_index / 16; row < BM; row += 2 * T::NSIMDS) {
        threadgroup bfloat *to = xs + row * R4_TILE_LD + within;
        const uint there = row < nrows ? min(ncols - min(ncols, column), uint(R4_LANE_NCOLS)) : 0;
        X from = x + (ulong(row) * ncols + column);
        if (there == R4_LANE_NCOLS) {
            R4_UNROLL
            for (uint j = 0; j < R4_LANE_NCOLS; j++)
                to[j] = from[j];
        } else {
            R4_UNROLL
            for (uint j = 0; j < R4_LANE_NCOLS; j++)
                to[j] = j < there ? bfloat(from[j]) : bfloat(0.0f);
        }
    }
}

/* ---- Products --------------------------------------------------------------------------------
 */

/* Columns column0 .. column1 of the staged step, multiples of 8. Matrices none of whose rows is in
 * row0 .. row1 of the tile are left out. */
template <class T, int WN>
METAL_FUNC void r4_multiply(r4_staged staged, uint column0, uint column1, uint row0, uint row1,
                            r4_place at, thread simdgroup_float8x8 *sums) {
    const uint2 place = r4_matrix_place(at.lane);
    const uint m0 = at.simd / WN * (8 * T::TM), n0 = at.simd % WN * (8 * T::TN);

    const threadgroup bfloat *xs = staged.xs + (m0 + place.x) * R4_TILE_LD + place.y;
    const threadgroup bfloat *ws = staged.ws + (n0 + place.y) * R4_TILE_LD + place.x;
    for (uint column = column0; column < column1; column += 8) {
        simdgroup_float8x8 w[T::TN];
        R4_UNROLL
        for (uint n = 0; n < T::TN; n++) {
            w[n].thread_elements()[0] = float(ws[n * 8 * R4_TILE_LD + column]);
            w[n].thread_elements()[1] = float(ws[n * 8 * R4_TILE_LD + R4_TILE_LD + column]);
        }
        R4_UNROLL
        for (uint m = 0; m < T::TM; m++) {
            if (m0 + 8 * m >= row1 || m0 + 8 * m + 8 <= row0) continue;
            simdgroup_float8x8 left;
            left.thread_elements()[0] = float(xs[m * 8 * R4_TILE_LD + column]);
            left.thread_elements()[1] = float(xs[m * 8 * R4_TILE_LD + column + 1]);
            R4_UNROLL
            for (uint n = 0; n < T::TN; n++) {
                thread simdgroup_float8x8 &sum = sums[m * T::TN + n];
                simdgroup_multiply_accumulate(sum, left, w[n], sum);
            }
        }
    }
}

template <class T> METAL_FUNC void r4_clear(thread simdgroup_float8x8 *sums) {
    R4_UNROLL
    for (int i = 0; i < T::TM * T::TN; i++) {
        sums[i].thread_elements()[0] = 0.0f;
        sums[i].thread_elements()[1] = 0.0f;
    }
}

/* What a threadgroup multiplies: rows of x, of which row0 .. row1 count, and rows of W. */
template <class X> struct r4_operands {
    X x;
    uint nx, row0, row1, ncols;
    r4_tile_rows rows;
};

/* One step of a slice, as far as it has columns of column0 .. column1. */
template <class T, int BM, int WN, uint SECOND, class X>
METAL_FUNC void r4_add_step(const thread r4_part &part, thread const r4_operands<X> &operands,
                            uint column0, uint column1, uint slice, r4_place at, r4_staged staged,
                            thread r4_two *twos, thread r4_cursor &escapes,
                            thread simdgroup_float8x8 *sums) {
    const uint start = slice * R4_SLICE_NCOLS + SECOND * R4_STEP_NCOLS;

    if (start >= column1 || start + R4_STEP_NCOLS <= column0) return;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    r4_stage_weights<T, SECOND>(part, operands.rows.bases, at, slice, twos, escapes, staged.ws);
    r4_stage_x<T, BM>(operands.x, operands.nx, operands.ncols, start, at, staged.xs);
    if (SECOND && (slice & 1) && start + R4_STEP_NCOLS < column1)
        r4_hold_twos<T>(part, operands.rows, at, slice + 1, twos);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    r4_multiply<T, WN>(staged, max(column0, start) - start,
                       min(column1 - start, uint(R4_STEP_NCOLS)), operands.row0, operands.row1, at,
                       sums);
}

/* Adds columns column0 .. column1, multiples of 8, in ascending order. Column K and those behind it
 * are 0 in x. All threads of the threadgroup come here. */
template <int BM, int BN, int WM, int WN, class X>
METAL_FUNC void r4_add_range(const thread r4_part &part, thread const r4_operands<X> &operands,
                             uint column0, uint column1, r4_place at, r4_staged staged,
                             thread simdgroup_float8x8 *sums) {
    typedef r4_tile<BM, BN, WM, WN> T;
    const uint first = column0 / R4_SLICE_NCOLS;
    r4_two twos[T::MINE];
    r4_cursor escapes;

    if (column0 >= column1) return;
    escapes = r4_hold_escapes<T>(part, operands.rows, at, column0 / R4_STEP_NCOLS);
    r4_hold_twos<T>(part, operands.rows, at, first, twos);
    for (uint slice = first; slice * R4_SLICE_NCOLS < column1; slice++) {
        r4_add_step<T, BM, WN, 0>(part, operands, column0, column1, slice, at, staged, twos,
                                  escapes, sums);
        r4_add_step<T, BM, WN, 1>(part, operands, column0, column1, slice, at, staged, twos,
                                  escapes, sums);
    }
}

/* ---- Results ---------------------------------------------------------------------------------
 */

METAL_FUNC void r4_store(device bfloat *to, float sum) {
    *to = bfloat(sum);
}

METAL_FUNC void r4_store(device float *to, float sum) {
    *to = sum;
}

/* y[row][n] for the rows of x and W that there are; y and bias point to the tile's first. */
template <int BM, int BN, int WM, int WN, bool BIAS, class X, class Y>
METAL_FUNC void r4_store_tile(thread const r4_operands<X> &operands, uint y_ncols,
                              const device bfloat *bias, Y y, r4_place at,
                              thread simdgroup_float8x8 *sums) {
    typedef r4_tile<BM, BN, WM, WN> T;
    const uint2 place = r4_matrix_place(at.lane);
    const uint m0 = at.simd / WN * (8 * T::TM), n0 = at.simd % WN * (8 * T::TN);

    R4_UNROLL
    for (uint m = 0; m < T::TM; m++) {
        const uint row = m0 + 8 * m + place.x;
        if (row < operands.row0 || row >= operands.row1) continue;
        R4_UNROLL
        for (uint n = 0; n < T::TN; n++) {
            R4_UNROLL
            for (uint j = 0; j < 2; j++) {
                uint column = n0 + 8 * n + place.y + j;
                if (column >= operands.rows.nrows) continue;
                float sum = sums[m * T::TN + n].thread_elements()[j];
                if (BIAS) sum = sum + float(bias[column]);
                r4_store(y + ulong(row) * y_ncols + column, sum);
            }
        }
    }
}
