/* r4_gemm_experts_2: rows of x by expert, two weights. Template: BM, BN, WM, WN. */
threadgroup uint2 xs[BM * R4_TILE_LD / 4];
threadgroup uint2 ws[BN * R4_TILE_LD / 4];
const r4_part parts[2] = {
    r4_make_part(slices_0, rows_0, escapes_0, facts_0, x, y_0),
    r4_make_part(slices_1, rows_1, escapes_1, facts_1, x, y_1),
};
const r4_staged staged = {(threadgroup bfloat *)xs, (threadgroup bfloat *)ws};
const r4_place place = {simdgroup_index_in_threadgroup, thread_index_in_simdgroup};
r4_gemm_experts<2, BM, BN, WM, WN>(parts, x, experts, sizes, threadgroup_position_in_grid.xy, place,
                                   staged);
