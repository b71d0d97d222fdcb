/* r4_count_fixed: how many escapes each row of format 1 has. */
const uint row =
    threadgroup_position_in_grid.x * simdgroups_per_threadgroup + simdgroup_index_in_threadgroup;
r4_count_fixed(meta, idx, code_starts, sizes, row, thread_index_in_simdgroup, counts, faults);
