/* r4_rows: BF16 rows that ids name. */
const r4_part part =
    r4_make_part(slices_0, rows_0, escapes_0, facts_0, (const device bfloat *)nullptr, y_0);
const uint row =
    threadgroup_position_in_grid.y * simdgroups_per_threadgroup + simdgroup_index_in_threadgroup;
r4_rows(part, ids, sizes, threadgroup_position_in_grid.x, row, thread_index_in_simdgroup);
