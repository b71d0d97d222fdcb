/* r4_gemm_split: many rows of x, sums over parts of K. Template: BM, BN, WM, WN. */
threadgroup uint2 xs[BM * R4_TILE_LD / 4];
threadgroup uint2 ws[BN * R4_TILE_LD / 4];
const r4_part part = r4_make_part(slices_0, rows_0, escapes_0, facts_0, x, nullptr);
const r4_staged staged = {(threadgroup bfloat *)xs, (threadgroup bfloat *)ws};
const r4_place place = {simdgroup_index_in_threadgroup, thread_index_in_simdgroup};
r4_gemm_split<BM, BN, WM, WN>(part, x, sizes, splits, threadgroup_position_in_grid, place, staged);
