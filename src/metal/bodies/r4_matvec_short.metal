/* r4_matvec_short: one row of x, K <= 64. Template: BIAS. */
const r4_part part = r4_make_part(slices_0, rows_0, escapes_0, facts_0, bias_0, y_0);
const uint simd =
    threadgroup_position_in_grid.x * simdgroups_per_threadgroup + simdgroup_index_in_threadgroup;
r4_matvec_short<BIAS>(part, x, sizes, simd, thread_index_in_simdgroup);
