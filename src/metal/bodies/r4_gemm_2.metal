/* r4_gemm_2: many rows of x, two weights. Template: BM, BN, WM, WN, BK, BIAS. */
threadgroup uint2 xs[BM * R4_TILE_LD / 4];
threadgroup uint2 ws[BN * R4_TILE_LD / 4];
const r4_part parts[2] = {
    r4_make_part(slices_0, rows_0, escapes_0, facts_0, bias_0, y_0),
    r4_make_part(slices_1, rows_1, escapes_1, facts_1, bias_1, y_1),
};
const r4_staged staged = {(threadgroup bfloat *)xs, (threadgroup bfloat *)ws};
const r4_place place = {simdgroup_index_in_threadgroup, thread_index_in_simdgroup};
r4_gemm<2, BM, BN, WM, WN, BK, BIAS>(parts, x, sizes, threadgroup_position_in_grid.xy, place,
                                     staged);
