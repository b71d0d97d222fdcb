/* r4_matvec_3: one row of x, three weights. Template: BIAS. */
const r4_part parts[3] = {
    r4_make_part(slices_0, rows_0, escapes_0, facts_0, bias_0, y_0),
    r4_make_part(slices_1, rows_1, escapes_1, facts_1, bias_1, y_1),
    r4_make_part(slices_2, rows_2, escapes_2, facts_2, bias_2, y_2),
};
const uint simd =
    threadgroup_position_in_grid.x * simdgroups_per_threadgroup + simdgroup_index_in_threadgroup;
r4_matvec<3, BIAS>(parts, x, sizes, simd, thread_index_in_simdgroup);
