/* r4_wide_1: 2 to 15 rows of x, one weight. Template: NV, L, BIAS. */
const r4_part parts[1] = {
    r4_make_part(slices_0, rows_0, escapes_0, facts_0, bias_0, y_0),
};
r4_wide<1, NV, L, BIAS>(parts, x, sizes, threadgroup_position_in_grid.x, threadgroups_per_grid.x,
                        threadgroup_position_in_grid.y, simdgroup_index_in_threadgroup,
                        thread_index_in_simdgroup);
