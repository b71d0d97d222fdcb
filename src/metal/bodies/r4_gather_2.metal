/* r4_gather_2: items that meet rows of their experts, two weights. */
const r4_part parts[2] = {
    r4_make_part(slices_0, rows_0, escapes_0, facts_0, x, y_0),
    r4_make_part(slices_1, rows_1, escapes_1, facts_1, x, y_1),
};
const uint simd =
    threadgroup_position_in_grid.x * simdgroups_per_threadgroup + simdgroup_index_in_threadgroup;
r4_gather<2>(parts, x, lhs, rhs, sizes, threadgroup_position_in_grid.y, simd,
             thread_index_in_simdgroup);
