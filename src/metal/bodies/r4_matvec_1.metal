/* r4_matvec_1: one row of x, one weight. Template: BIAS. */
const r4_part parts[1] = {
    r4_make_part(slices_0, rows_0, escapes_0, facts_0, bias_0, y_0),
};
const uint simd =
    threadgroup_position_in_grid.x * simdgroups_per_threadgroup + simdgroup_index_in_threadgroup;
r4_matvec<1, BIAS>(parts, x, sizes, simd, thread_index_in_simdgroup);
