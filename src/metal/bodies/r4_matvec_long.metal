/* r4_matvec_long: one row of x, K >= 16 rows. Template: BIAS. */
threadgroup float of_simds[R4_LONG_NSUMS];
const r4_part part = r4_make_part(slices_0, rows_0, escapes_0, facts_0, bias_0, y_0);
r4_matvec_long<BIAS>(part, x, sizes, threadgroup_position_in_grid.x, simdgroup_index_in_threadgroup,
                     thread_index_in_simdgroup, of_simds);
