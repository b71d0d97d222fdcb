/* r4_from_rice_1: format 2 to R4, pass 1. */
threadgroup uchar ranked[256];
threadgroup uchar exponents[R4_LOAD_NSIMDS * R4_SLICE_NCOLS];
threadgroup uchar *mine = exponents + simdgroup_index_in_threadgroup * R4_SLICE_NCOLS;
r4_stage_table(table, thread_index_in_threadgroup, ranked);
const uint row =
    threadgroup_position_in_grid.x * simdgroups_per_threadgroup + simdgroup_index_in_threadgroup;
if (row < uint(sizes[1])) {
    const r4_made made = {slices, counts, masks, kept, faults};
    r4_sink<true> sink = r4_begin_pass1(made, row, uint(sizes[0]));
    r4_decode_rice(r4_rice_parts(raw, meta, bits, row_starts, sizes), row,
                   thread_index_in_simdgroup, ranked, mine, sink);
    r4_end_pass1(made, row, thread_index_in_simdgroup, sink);
}
