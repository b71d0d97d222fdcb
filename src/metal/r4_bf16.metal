/* r4_bf16.metal - a row of BF16 weights to R4. Stands behind r4_sink.metal. */

/* sizes: K, rows, base. */
template <bool FIRST, class W>
METAL_FUNC void r4_encode_bf16(W weights, const constant int *sizes, uint row, uint lane,
                               thread r4_sink<FIRST> &sink) {
    const uint ncols = uint(sizes[0]), nslices = r4_nslices(ncols);
    uint codes_before = 0;

    weights += ulong(row) * ncols;
    for (uint slice = 0; slice < nslices; slice++) {
        const uint nthere = r4_count_there(slice, lane, ncols);
        uint4 exponents(0), raw(0);
        R4_UNROLL
        for (uint q = 0; q < 4; q++) {
            if (q >= nthere) continue;
            bfloat value = weights[slice * R4_SLICE_NCOLS + R4_LANE_NCOLS * lane + q];
            uint bits = as_type<ushort>(value);
            exponents[q] = bits >> 7 & 255;
            raw[q] = (bits >> 8 & 0x80) | (bits & 0x7f);
        }
        r4_put(sink, slice, ncols, lane, uint(sizes[2]), exponents, raw, nthere, codes_before);
    }
}
