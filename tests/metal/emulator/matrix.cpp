// 8 x 8 matrix steps. Which of the eight products of an element are added first is the hardware's
// secret, so the order is an option, and what is proven must hold in all of them.

#include <cmath>
#include <cstring>

#include "state.h"

namespace emulator {

// Where a lane's two elements are: row, and the first of two columns.
static unsigned row_of(unsigned lane) {
    return (lane / 4 & 4) + lane / 2 % 4;
}
static unsigned column_of(unsigned lane) {
    return (lane / 4 & 2) * 2 + lane % 2 * 2;
}

using Matrix = float[8][8];

template <bool FUSED>
static void add_step(float sum[8], const Matrix &a, const Matrix &b, int i, int k) {
    for (int j = 0; j < 8; j++)
        sum[j] = FUSED ? __builtin_fmaf(a[i][k], b[k][j], sum[j]) : sum[j] + a[i][k] * b[k][j];
}

// sum += products k0, k0 + step, ... of row i.
template <bool FUSED>
static void add_chain(float sum[8], const Matrix &a, const Matrix &b, int i, int k0, int n,
                      int step) {
    for (int k = 0; k < n; k++)
        add_step<FUSED>(sum, a, b, i, k0 + k * step);
}

template <bool FUSED>
static void multiply_row(float d[8], const Matrix &a, const Matrix &b, const float c[8], int i,
                         int order) {
    float sum[8], other[8] = {0}, pairs[4][8] = {{0}};
    memcpy(sum, c, sizeof sum);
    switch (order) {
    case 0: // one chain from c, ascending
        add_chain<FUSED>(sum, a, b, i, 0, 8, 1);
        break;
    case 1: // descending
        add_chain<FUSED>(sum, a, b, i, 7, 8, -1);
        break;
    case 2: // the products by themselves, then c
        add_chain<FUSED>(other, a, b, i, 0, 8, 1);
        for (int j = 0; j < 8; j++)
            sum[j] = c[j] + other[j];
        break;
    case 3: // a tree of products, then c
        for (int p = 0; p < 4; p++)
            add_chain<FUSED>(pairs[p], a, b, i, 2 * p, 2, 1);
        for (int j = 0; j < 8; j++)
            sum[j] = c[j] + ((pairs[0][j] + pairs[1][j]) + (pairs[2][j] + pairs[3][j]));
        break;
    case 4: // two blocks of four, each summed by itself
        add_chain<FUSED>(pairs[0], a, b, i, 0, 4, 1);
        add_chain<FUSED>(pairs[1], a, b, i, 4, 4, 1);
        for (int j = 0; j < 8; j++)
            sum[j] = (c[j] + pairs[0][j]) + pairs[1][j];
        break;
    default: // even products from c, odd ones apart
        add_chain<FUSED>(sum, a, b, i, 0, 4, 2);
        add_chain<FUSED>(other, a, b, i, 1, 4, 2);
        for (int j = 0; j < 8; j++)
            sum[j] = sum[j] + other[j];
    }
    memcpy(d, sum, sizeof sum);
}

void multiply_accumulate(float d[2], const float a[2], const float b[2], const float c[2],
                         bool fused, Site site) {
    float mine[6] = {a[0], a[1], b[0], b[1], c[0], c[1]};
    uint32_t active;
    const char *slots = gather(mine, sizeof mine, site, &active);
    if (active != ~0u) {
        find(INACTIVE_LANE, "a matrix step in a simdgroup of which lanes have ended");
        d[0] = d[1] = __builtin_nanf("");
        return;
    }
    unsigned number = running.current / LANES, lane = running.current % LANES;
    static Matrix product[MAX_THREADS / LANES];
    static unsigned computed[MAX_THREADS / LANES];
    unsigned turn = state.simdgroups[number].turn;
    // The first lane that goes on computes for all.
    if (computed[number] != turn) {
        computed[number] = turn;
        running.result->counts.matrix++;
        Matrix left, right, sum;
        for (unsigned from = 0; from < LANES; from++) {
            auto given = reinterpret_cast<const float *>(slots + from * SLOT);
            unsigned i = row_of(from), j = column_of(from);
            memcpy(&left[i][j], given, 8);
            memcpy(&right[i][j], given + 2, 8);
            memcpy(&sum[i][j], given + 4, 8);
        }
        int order = state.options.mma;
        for (int i = 0; i < 8; i++) {
            if (fused)
                multiply_row<true>(product[number][i], left, right, sum[i], i, order);
            else
                multiply_row<false>(product[number][i], left, right, sum[i], i, order);
        }
    }
    memcpy(d, &product[number][row_of(lane)][column_of(lane)], 8);
}

} // namespace emulator
