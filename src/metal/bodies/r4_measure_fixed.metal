/* r4_measure_fixed: how wide each row of format 1 is. */
const uint row =
    threadgroup_position_in_grid.x * simdgroups_per_threadgroup + simdgroup_index_in_threadgroup;
r4_measure_fixed(meta, sizes, row, thread_index_in_simdgroup, widths, faults);
