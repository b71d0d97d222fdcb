/* r4_gather_1: items that meet rows of their experts, one weight. */
const r4_part parts[1] = {
    r4_make_part(slices_0, rows_0, escapes_0, facts_0, x, y_0),
};
const uint simd =
    threadgroup_position_in_grid.x * simdgroups_per_threadgroup + simdgroup_index_in_threadgroup;
r4_gather<1>(parts, x, lhs, rhs, sizes, threadgroup_position_in_grid.y, simd,
             thread_index_in_simdgroup);
