/* r4_from_bf16_1: BF16 to R4, pass 1. */
const uint row =
    threadgroup_position_in_grid.x * simdgroups_per_threadgroup + simdgroup_index_in_threadgroup;
if (row < uint(sizes[1])) {
    const r4_made made = {slices, counts, masks, kept, faults};
    r4_sink<true> sink = r4_begin_pass1(made, row, uint(sizes[0]));
    r4_encode_bf16(weights, sizes, row, thread_index_in_simdgroup, sink);
    r4_end_pass1(made, row, thread_index_in_simdgroup, sink);
}
