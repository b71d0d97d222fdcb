/* r4_scan.metal - sums of what comes before. One threadgroup of 1,024. */

constant constexpr uint R4_SCAN_NTHREADS = 1024;

/* starts[i]: the sum of values[0 .. i], starts[n] that of all; sizes: n. sums [R4_SCAN_NTHREADS] */
template <class V>
METAL_FUNC void r4_scan(V values, const constant int *sizes, uint thread_index,
                        threadgroup uint *sums, device uint *starts) {
    const uint n = uint(sizes[0]), each = (n + R4_SCAN_NTHREADS - 1) / R4_SCAN_NTHREADS;
    const uint first = min(thread_index * each, n), last = min(first + each, n);
    uint sum = 0;

    for (uint i = first; i < last; i++)
        sum += values[i];
    sums[thread_index] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint apart = 1; apart < R4_SCAN_NTHREADS; apart *= 2) {
        uint before = thread_index >= apart ? sums[thread_index - apart] : 0;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        sums[thread_index] += before;
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    uint start = sums[thread_index] - sum;
    for (uint i = first; i < last; i++) {
        starts[i] = start;
        start += values[i];
    }
    if (thread_index + 1 == R4_SCAN_NTHREADS) starts[n] = sums[thread_index];
}
