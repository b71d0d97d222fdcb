/* r4_from_rice_2: format 2 to R4, pass 2. */
threadgroup uchar ranked[256];
threadgroup uchar exponents[R4_LOAD_NSIMDS * R4_SLICE_NCOLS];
threadgroup uchar *mine = exponents + simdgroup_index_in_threadgroup * R4_SLICE_NCOLS;
r4_stage_table(table, thread_index_in_threadgroup, ranked);
const uint row =
    threadgroup_position_in_grid.x * simdgroups_per_threadgroup + simdgroup_index_in_threadgroup;
if (row < uint(sizes[1])) {
    r4_sink<false> sink;
    if (r4_begin_pass2(r4_make_places(starts, masks, kept, rows, escapes), row, uint(sizes[1]),
                       thread_index_in_simdgroup, sink))
        r4_decode_rice(r4_rice_parts(raw, meta, bits, row_starts, sizes), row,
                       thread_index_in_simdgroup, ranked, mine, sink);
}
