/* r4_gemm_experts_1: rows of x by expert, 1 weight(s). Template: BM, BN, WM, WN. */
threadgroup bfloat xs[BM * R4_TILE_LD];
threadgroup bfloat ws[BN * R4_TILE_LD];
const r4_part parts[1] = {
    r4_make_part(slices_0, rows_0, escapes_0, facts_0, x, y_0),
};
const r4_place place = {simdgroup_index_in_threadgroup, thread_index_in_simdgroup};
r4_gemm_experts<1, BM, BN, WM, WN>(parts, x, experts, sizes, threadgroup_position_in_grid.xy, place,
                                   xs, ws);
