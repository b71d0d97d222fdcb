/* r4_add_splits: sums over parts of K to BF16. Template: BIAS. */
r4_add_splits<BIAS>(splits, bias, sizes, thread_position_in_grid.x, thread_position_in_grid.y, y);
