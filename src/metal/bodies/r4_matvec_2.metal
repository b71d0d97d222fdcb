/* r4_matvec_2: one row of x, two weights. Template: BIAS. */
const r4_part parts[2] = {
    r4_make_part(slices_0, rows_0, escapes_0, facts_0, bias_0, y_0),
    r4_make_part(slices_1, rows_1, escapes_1, facts_1, bias_1, y_1),
};
const uint simd =
    threadgroup_position_in_grid.x * simdgroups_per_threadgroup + simdgroup_index_in_threadgroup;
r4_matvec<2, BIAS>(parts, x, sizes, simd, thread_index_in_simdgroup);
