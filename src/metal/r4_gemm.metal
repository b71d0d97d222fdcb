/* r4_gemm.metal - many rows of x times W in the orders of MLX's steel GEMMs (0.32.2):
 *
 *   r4_gemm          fused: a rest of K % BK first, then from 0 on
 *   r4_gemm_split    split-K: each part of K for itself, the rest of the last part at its end, and
 *                    r4_add_splits
 *   r4_gemm_experts  gather_mm_rhs: rows of x in the order of their experts, BK 16
 *
 * Tiles do not change the order; BK only where K % BK is not 0. Stands behind r4_tile.metal.
 */

/* Of the tiles of BN rows of W of all parts finds the part that `tile` is in, and counts from its
 * first. */
template <int P, int BN>
METAL_FUNC bool r4_find_tile(const thread r4_part *parts, thread uint &tile, thread r4_part &part) {
    bool is_found = false;
    for (int i = 0; i < P; i++) {
        uint n = (parts[i].taken + BN - 1) / BN;
        if (is_found) continue;
        if (tile < n) {
            part = parts[i];
            is_found = true;
        } else {
            tile -= n;
        }
    }
    return is_found;
}

template <int BM, int BN, class X>
METAL_FUNC r4_operands<X> r4_operands_of(const thread r4_part &part, X x, uint nx, uint ncols,
                                         uint block_m, uint block_n, uint expert) {
    r4_operands<X> operands;
    operands.x = x + ulong(block_m) * BM * ncols;
    operands.nx = min(uint(BM), nx - block_m * BM);
    operands.row0 = 0;
    operands.row1 = operands.nx;
    operands.ncols = ncols;
    operands.rows.first = expert * part.block_nrows + part.row0 + block_n * BN;
    operands.rows.nrows = min(uint(BN), part.taken - block_n * BN);
    operands.rows.nslices = r4_nslices(ncols);
    operands.rows.bases = r4_bases(part.base);
    return operands;
}

/* All of K, the rest of K % BK first. */
template <int BM, int BN, int WM, int WN, int BK, class X>
METAL_FUNC void r4_add_fused(const thread r4_part &part, thread const r4_operands<X> &operands,
                             r4_place at, r4_staged staged, thread simdgroup_float8x8 *sums) {
    const uint whole = operands.ncols / BK * BK;
    if (whole < operands.ncols)
        r4_add_range<BM, BN, WM, WN>(part, operands, whole, whole + BK, at, staged, sums);
    r4_add_range<BM, BN, WM, WN>(part, operands, 0, whole, at, staged, sums);
}

/* sizes: K, rows of x. y [rows of x, taken] of each part. */
template <int P, int BM, int BN, int WM, int WN, int BK, bool BIAS, class X>
METAL_FUNC void r4_gemm(const thread r4_part *parts, X x, const constant int *sizes, uint2 tile,
                        r4_place at, r4_staged staged) {
    typedef r4_tile<BM, BN, WM, WN> T;
    r4_part part;
    simdgroup_float8x8 sums[T::TM * T::TN];
    uint tile_n = tile.x;

    if (!r4_find_tile<P, BN>(parts, tile_n, part)) return;
    r4_operands<X> operands =
        r4_operands_of<BM, BN>(part, x, uint(sizes[1]), uint(sizes[0]), tile.y, tile_n, 0);
    r4_clear<T>(sums);
    r4_add_fused<BM, BN, WM, WN, BK>(part, operands, at, staged, sums);
    r4_store_tile<BM, BN, WM, WN, BIAS>(operands, part.taken, part.bias + tile_n * BN,
                                        part.y + (ulong(tile.y) * BM * part.taken + tile_n * BN),
                                        at, sums);
}

/* sizes: K, rows of x, parts of K, columns of a part but the last. splits [parts, rows of x,
 * taken].
 */
template <int BM, int BN, int WM, int WN, class X>
METAL_FUNC void r4_gemm_split(const thread r4_part &part, X x, const constant int *sizes,
                              device float *splits, uint3 tile, r4_place at, r4_staged staged) {
    typedef r4_tile<BM, BN, WM, WN> T;
    const uint ncols = uint(sizes[0]), nx = uint(sizes[1]), length = uint(sizes[3]);
    const bool is_last = tile.z + 1 == uint(sizes[2]);
    const uint column1 = is_last ? (ncols + 15) / 16 * 16 : (tile.z + 1) * length;
    simdgroup_float8x8 sums[T::TM * T::TN];
    r4_operands<X> operands = r4_operands_of<BM, BN>(part, x, nx, ncols, tile.y, tile.x, 0);

    r4_clear<T>(sums);
    r4_add_range<BM, BN, WM, WN>(part, operands, tile.z * length, column1, at, staged, sums);
    splits += (ulong(tile.z) * nx + ulong(tile.y) * BM) * part.taken + tile.x * BN;
    r4_store_tile<BM, BN, WM, WN, false>(operands, part.taken, part.bias, splits, at, sums);
}

/* y[m][n] from its sums over parts of K. sizes: rows of x, rows of W, parts. */
template <bool BIAS>
METAL_FUNC void r4_add_splits(const device float *splits, const device bfloat *bias,
                              const constant int *sizes, uint n, uint m, device bfloat *y) {
    const ulong at = ulong(m) * uint(sizes[1]) + n;
    const ulong stride = ulong(uint(sizes[0])) * uint(sizes[1]);
    float sum = 0;

    for (uint i = 0; i < uint(sizes[2]); i++)
        sum += splits[i * stride + at];
    if (BIAS) sum = sum * 1.0f + float(bias[n]);
    y[at] = bfloat(sum);
}

/* Rows of x in the order of their experts: each run of one expert in a tile goes over W for itself.
 * sizes: K, rows of x, experts. y [rows of x, taken] of each part. */
template <int P, int BM, int BN, int WM, int WN, class X, class I>
METAL_FUNC void r4_gemm_experts(const thread r4_part *parts, X x, I experts,
                                const constant int *sizes, uint2 tile, r4_place at,
                                r4_staged staged) {
    typedef r4_tile<BM, BN, WM, WN> T;
    const uint ncols = uint(sizes[0]), nx = uint(sizes[1]), nexperts = uint(sizes[2]);
    uint tile_n = tile.x;
    r4_part part;

    if (!r4_find_tile<P, BN>(parts, tile_n, part)) return;
    experts += tile.y * BM;
    const uint nrows = min(uint(BM), nx - tile.y * BM);
    for (uint row = 0; row < nrows;) {
        const uint expert = uint(experts[row]);
        simdgroup_float8x8 sums[T::TM * T::TN];
        r4_operands<X> operands = r4_operands_of<BM, BN>(part, x, nx, ncols, tile.y, tile_n,
                                                         expert < nexperts ? expert : 0);

        operands.row0 = row;
        while (row < nrows && uint(experts[row]) == expert)
            row++;
        operands.row1 = row;
        r4_clear<T>(sums);
        r4_add_fused<BM, BN, WM, WN, 16>(part, operands, at, staged, sums);
        if (expert >= nexperts)
            for (int i = 0; i < T::TM * T::TN; i++)
                for (int j = 0; j < 2; j++)
                    sums[i].thread_elements()[j] = as_type<float>(0x7fc00000u);
        r4_store_tile<BM, BN, WM, WN, false>(
            operands, part.taken, part.bias,
            part.y + (ulong(tile.y) * BM * part.taken + tile_n * BN), at, sums);
    }
}
