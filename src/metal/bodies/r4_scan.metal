/* r4_scan: sums of what comes before. */
threadgroup uint sums[R4_SCAN_NTHREADS];
r4_scan(values, sizes, thread_index_in_threadgroup, sums, starts);
