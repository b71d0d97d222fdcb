/* r4_from_bf16_2: BF16 to R4, pass 2. */
const uint row =
    threadgroup_position_in_grid.x * simdgroups_per_threadgroup + simdgroup_index_in_threadgroup;
if (row < uint(sizes[1])) {
    r4_sink<false> sink;
    if (r4_begin_pass2(r4_make_places(starts, masks, kept, rows, escapes), row, uint(sizes[1]),
                       thread_index_in_simdgroup, sink))
        r4_encode_bf16(weights, sizes, row, thread_index_in_simdgroup, sink);
}
