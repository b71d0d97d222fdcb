// Small kernels for tests of the emulator: one for each thing that it must do or find.

constant uint probe_factor [[function_constant(3)]];

// Every function of a simdgroup once, its result at out[function * 32 + lane].
[[kernel]] void probe_simd(const device uint *in [[buffer(0)]], device uint *out [[buffer(1)]],
                           uint lane [[thread_index_in_simdgroup]]) {
    const uint v = in[lane];
    out[0 * 32 + lane] = simd_shuffle(v, ushort(31 - lane));
    out[1 * 32 + lane] = simd_shuffle_down(v, 5);
    out[2 * 32 + lane] = simd_shuffle_up(v, 5);
    out[3 * 32 + lane] = simd_shuffle_xor(v, 9);
    out[4 * 32 + lane] = simd_broadcast(v, 7);
    out[5 * 32 + lane] = simd_sum(v);
    out[6 * 32 + lane] = simd_min(v);
    out[7 * 32 + lane] = simd_max(v);
    out[8 * 32 + lane] = simd_prefix_inclusive_sum(v);
    out[9 * 32 + lane] = simd_prefix_exclusive_sum(v);
    out[10 * 32 + lane] = uint(simd_vote::vote_t(simd_ballot(v & 1)));
    out[11 * 32 + lane] = simd_all(v > 3) | simd_any(v == 3) << 1;
    out[12 * 32 + lane] = simd_or(v) ^ simd_and(v) ^ simd_xor(v);
    out[13 * 32 + lane] = simd_shuffle_and_fill_up(v, 77u, 3);
    out[14 * 32 + lane] = simd_broadcast_first(v);
}

[[kernel]] void probe_float_sum(const device float *in [[buffer(0)]],
                                device float *out [[buffer(1)]],
                                uint lane [[thread_index_in_simdgroup]]) {
    out[lane] = simd_sum(in[lane]);
}

// d = a b + c of 8 x 8 matrices of float.
[[kernel]] void probe_matrix(const device float *a [[buffer(0)]],
                             const device float *b [[buffer(1)]],
                             const device float *c [[buffer(2)]], device float *d [[buffer(3)]]) {
    simdgroup_float8x8 left, right, sum;
    simdgroup_load(left, a);
    simdgroup_load(right, b, 8, ulong2(0), true);
    simdgroup_load(sum, c, 8);
    simdgroup_multiply_accumulate(sum, left, right, sum);
    simdgroup_store(sum, d, 8);
}

[[kernel]] void probe_bfloat(const device float *in [[buffer(0)]], device bfloat *out [[buffer(1)]],
                             device float *widened [[buffer(2)]],
                             uint i [[thread_position_in_grid]]) {
    out[i] = bfloat(in[i]);
    widened[i] = float(out[i]);
}

[[kernel]] void probe_bits(const device uint *in [[buffer(0)]], device uint *out [[buffer(1)]],
                           uint i [[thread_position_in_grid]]) {
    const uint v = in[i];
    device uint *to = out + 10 * i;
    to[0] = popcount(v);
    to[1] = clz(v);
    to[2] = ctz(v);
    to[3] = reverse_bits(v);
    to[4] = extract_bits(v, 5, 11);
    to[5] = insert_bits(v, 0x5Au, 7, 8);
    to[6] = rotate(v, 9u);
    to[7] = mulhi(v, 0x9E3779B9u);
    to[8] = uint(as_type<uchar4>(v).z) | uint(as_type<ushort2>(v).x) << 16;
    const uint4 four = uint4(v, v + 1, v + 2, v + 3);
    const uint2 two = four.zw ^ four.xy;
    to[9] = two.x + (two.y << 4) + select(1u, 2u, v > 5);
}

// Where each thread is: the sum of the words, with weights.
[[kernel]] void probe_places(device uint *out [[buffer(0)]], uint3 at [[thread_position_in_grid]],
                             uint3 inside [[thread_position_in_threadgroup]],
                             uint3 group [[threadgroup_position_in_grid]],
                             uint3 grid [[threads_per_grid]],
                             uint3 size [[threads_per_threadgroup]],
                             uint index [[thread_index_in_threadgroup]],
                             uint lane [[thread_index_in_simdgroup]],
                             uint simd [[simdgroup_index_in_threadgroup]]) {
    device uint *to = out + 8 * (at.x + grid.x * (at.y + grid.y * at.z));
    to[0] = inside.x + 100 * inside.y + 10000 * inside.z;
    to[1] = group.x + 100 * group.y + 10000 * group.z;
    to[2] = size.x + 100 * size.y + 10000 * size.z;
    to[3] = index;
    to[4] = lane + 100 * simd;
}

[[kernel]] void probe_constant(device uint *out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    out[i] = i * probe_factor;
}

[[kernel]] void probe_atomic(device atomic_uint *total [[buffer(0)]],
                             threadgroup uint *mine [[threadgroup(0)]],
                             uint i [[thread_index_in_threadgroup]]) {
    mine[i] = i;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    atomic_fetch_add_explicit(total, mine[63 - i], memory_order_relaxed);
}

// A row turned around through threadgroup memory.
[[kernel]] void probe_reverse(const device uint *in [[buffer(0)]], device uint *out [[buffer(1)]],
                              uint i [[thread_index_in_threadgroup]]) {
    threadgroup uint row[256];
    row[i] = in[i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    out[i] = row[255 - i];
}

// Neighbours of a simdgroup through threadgroup memory.
[[kernel]] void probe_neighbours(const device uint *in [[buffer(0)]],
                                 device uint *out [[buffer(1)]],
                                 uint i [[thread_index_in_threadgroup]]) {
    threadgroup uint row[256];
    row[i] = in[i];
    simdgroup_barrier(mem_flags::mem_threadgroup);
    out[i] = row[i ^ 1];
}

[[kernel]] void probe_ended(const device uint *in [[buffer(0)]], device uint *out [[buffer(1)]],
                            const constant uint &n [[buffer(2)]],
                            uint i [[thread_position_in_grid]]) {
    if (i >= n) return;
    out[i] = simd_shuffle_down(in[i], 1);
}

[[kernel]] void probe_one_place(device uint *out [[buffer(0)]],
                                uint i [[thread_position_in_grid]]) {
    out[i / 2] = i / 2;
}
