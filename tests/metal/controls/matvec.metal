// A matvec in MLX's order, for tests of the tests: they change a word of it and must then fail.
//
// A threadgroup makes one output: `groups` simdgroups side by side, whose sums meet in threadgroup
// memory.

template <int GROUPS>
[[kernel]] void control_matvec(const device bfloat *w [[buffer(0)]],
                               const device bfloat *x [[buffer(1)]], device bfloat *y [[buffer(2)]],
                               const constant uint &ncolumns [[buffer(3)]],
                               uint row [[threadgroup_position_in_grid]],
                               uint simd [[simdgroup_index_in_threadgroup]],
                               uint lane [[thread_index_in_simdgroup]]) {
    threadgroup float sums[GROUPS];
    const device bfloat *from = w + ulong(row) * ncolumns;
    float sum = 0;
    for (uint k = 128 * simd + 4 * lane; k < ncolumns; k += 128 * GROUPS) {
        for (uint i = 0; i < 4; i++) {
            if (k + i < ncolumns) sum += float(from[k + i]) * float(x[k + i]);
        }
    }
    for (ushort step = 16; step >= 1; step /= 2)
        sum += simd_shuffle_down(sum, step);
    if (lane == 0) sums[simd] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (simd == 0 && lane == 0) {
        float total = sums[0];
        for (uint i = 1; i < GROUPS; i++)
            total += sums[i];
        y[row] = bfloat(total);
    }
}
