// An array of a thread's own, indexed by what the launch says.

[[kernel]] void control_index(const constant uint &index [[buffer(0)]],
                              device uint *out [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    uint own[8];
    for (uint k = 0; k < 8; k++)
        own[k] = k * i;
    out[i] = own[index];
}
