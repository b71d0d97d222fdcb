/* r4_gemm_experts_1: rows of x by expert, one weight. Template: BM, BN, WM, WN. */
threadgroup uint2 xs[BM * R4_TILE_LD / 4];
threadgroup uint2 ws[BN * R4_TILE_LD / 4];
const r4_part parts[1] = {
    r4_make_part(slices_0, rows_0, escapes_0, facts_0, x, y_0),
};
const r4_staged staged = {(threadgroup bfloat *)xs, (threadgroup bfloat *)ws};
const r4_place place = {simdgroup_index_in_threadgroup, thread_index_in_simdgroup};
r4_gemm_experts<1, BM, BN, WM, WN>(parts, x, experts, sizes, threadgroup_position_in_grid.xy, place,
                                   staged);
