/* r4_wide_3: 2 to 15 rows of x, three weights. Template: NV, L, BIAS. */
const r4_part parts[3] = {
    r4_make_part(slices_0, rows_0, escapes_0, facts_0, bias_0, y_0),
    r4_make_part(slices_1, rows_1, escapes_1, facts_1, bias_1, y_1),
    r4_make_part(slices_2, rows_2, escapes_2, facts_2, bias_2, y_2),
};
r4_wide<3, NV, L, BIAS>(parts, x, sizes, threadgroup_position_in_grid.x, threadgroups_per_grid.x,
                        threadgroup_position_in_grid.y, simdgroup_index_in_threadgroup,
                        thread_index_in_simdgroup);
