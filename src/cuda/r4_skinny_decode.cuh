/* r4_skinny_decode.cuh - half a group of 16 rows of R4, from shared memory to what mma.sync takes
 * as its first operand: lane 4 g + t has rows g and g + 8, and of these columns 4 t .. 4 t + 3 of
 * every 16, in this order. The order of columns within a step changes no bit (r4_mma_plain.h), as
 * long as the second operand has the same. */
#ifndef BINADE_CUDA_R4_SKINNY_DECODE_CUH
#define BINADE_CUDA_R4_SKINNY_DECODE_CUH

#include "cuda/r4_gemm_ptx.cuh"
#include "cuda/r4_gemm_shape.h"
#include "cuda/r4_unpack.cuh"

template <int PER_LANE> struct r4_skinny_half {
    enum {
        NCOLS = R4_GROUP_NCOLS / 2,
        NSTEPS = NCOLS / 16,
        UNIT_NSTEPS = R4_UNIT_NCOLS / 16,
        SLICE_NSTEPS = R4_SLICE_NCOLS / 16,
        NWORDS = 8, /* of a lane, a row and a slice */
    };

    /* Pairs of BF16: of each step two columns of rows g and g + 8, then the other two. */
    unsigned a[NSTEPS][4];

    /* ---- Reading -------------------------------------------------------------------------------
     */

    /* Of two slices and rows g and g + 8: a lane's raw words, and codes of both slices. */
    struct words {
        uint2 raw[2][NWORDS];
        unsigned codes[2][NWORDS];
    };

    /* The number, of 32 in a row of a slice, of word i: those of a step are the same four columns
     * of x whatever PER_LANE is. */
    __device__ static constexpr unsigned word_step(unsigned i) {
        return PER_LANE == 4 ? 4 * i : i / 2 * 8 + i % 2;
    }
    __device__ static unsigned first_word(unsigned lane) {
        return PER_LANE == 4 ? lane % 4 : lane % 4 * 2;
    }

    template <int N = 0, int I = 0>
    __device__ static void read_whole(words &w, unsigned raw, unsigned codes) {
        constexpr int at = N * 8 * R4_SKINNY_ROW_NBYTES;
        w.raw[N][I] = r4_shared8<at + 16 * word_step(I)>(raw);
        w.codes[N][I] = r4_shared4<at + 8 * word_step(I)>(codes);
        if constexpr (I + 1 < NWORDS)
            read_whole<N, I + 1>(w, raw, codes);
        else if constexpr (N == 0)
            read_whole<1>(w, raw, codes);
    }

    /* Of the last slices of a row, which lie singly, those from `slice` on: 0 where there is none.
     */
    __device__ static void read_singles(words &w, unsigned row, unsigned word0, unsigned slice,
                                        unsigned nslices) {
        const unsigned at = row + slice * R4_SLICE_NBYTES;
        const bool has0 = slice < nslices, has1 = slice + 1 < nslices;
#pragma unroll
        for (unsigned n = 0; n < 2; n++)
#pragma unroll
            for (unsigned i = 0; i < NWORDS; i++) {
                const unsigned word = word0 + word_step(i);
                const unsigned raw = at + n * 8 * R4_SKINNY_ROW_NBYTES + 4 * word;
                const unsigned codes = raw + R4_SLICE_CODES_AT - 2 * word;
                w.raw[n][i].x = has0 ? r4_shared4<0>(raw) : 0;
                w.raw[n][i].y = has1 ? r4_shared4<R4_SLICE_NBYTES>(raw) : 0;
                w.codes[n][i] = r4_join_codes(has0 ? r4_shared2<0>(codes) : 0,
                                              has1 ? r4_shared2<R4_SLICE_NBYTES>(codes) : 0);
            }
    }

    /* ---- Decoding ------------------------------------------------------------------------------
     */

    /* Pair P of slice S. */
    template <int S, int P>
    __device__ static unsigned pair_of(uint2 raw, unsigned codes, unsigned bases) {
        const unsigned keep = 0x807f807fu, in_place = 0x07800780u;
        constexpr int turn = 8 * S + 4 * P;
        unsigned word = S == 0 ? raw.x : raw.y;
        if (P) word = __byte_perm(word, 0, 0x2301);
        if (turn) codes = __funnelshift_r(codes, codes, turn);
        return ((word & keep) | (codes & in_place)) + bases;
    }

    template <int S> __device__ void decode(const words &w, unsigned bases) {
#pragma unroll
        for (unsigned n = 0; n < 2; n++)
#pragma unroll
            for (unsigned i = 0; i < NWORDS; i++) {
                const unsigned pair0 = pair_of<S, 0>(w.raw[n][i], w.codes[n][i], bases);
                const unsigned pair1 = pair_of<S, 1>(w.raw[n][i], w.codes[n][i], bases);
                if (PER_LANE == 4) {
                    a[SLICE_NSTEPS * S + i][n] = pair0;
                    a[SLICE_NSTEPS * S + i][2 + n] = pair1;
                } else {
                    a[SLICE_NSTEPS * S + i / 2][i % 2 * 2 + n] = pair0;
                    a[SLICE_NSTEPS * S + UNIT_NSTEPS + i / 2][i % 2 * 2 + n] = pair1;
                }
            }
    }

    /* Half h, 0 or 1, of a group of nslices. stage: where its rows lie, R4_SKINNY_ROW_NBYTES each;
     * bases: as r4_unpack8 takes it. */
    __device__ void read(unsigned stage, unsigned h, unsigned nslices, unsigned lane,
                         unsigned bases) {
        const unsigned row = stage + lane / 4 * R4_SKINNY_ROW_NBYTES, word0 = first_word(lane);
        words w;
        if (nslices == R4_GROUP_NSLICES)
            read_whole(w, row + 16 * word0 + 8 * h, row + R4_GROUP_CODES_AT + 8 * word0 + 4 * h);
        else
            read_singles(w, row, word0, 2 * h, nslices);
        decode<0>(w, bases);
        decode<1>(w, bases);
    }

    /* ---- Escapes -------------------------------------------------------------------------------
     */

    /* Gives the weight of an escape, of row 0..15, its exponent: its code, 15, has made it
     * base + 15. All lanes have the same escape, so that they agree on the register. */
    __device__ void patch(unsigned escape, unsigned row, unsigned lane, unsigned bases) {
        const unsigned position = escape >> 8, word = position / 4 % 32, q = position % 4;
        unsigned step = position / R4_SLICE_NCOLS % 2 * SLICE_NSTEPS, owner, pair;
        if (PER_LANE == 4)
            step += word / 4, owner = word % 4, pair = q / 2;
        else
            step += q / 2 * UNIT_NSTEPS + word / 8, owner = word / 2 % 4, pair = word % 2;
        unsigned change = ((escape & 0xff) << 7 ^ ((bases & 0xffff) + (R4_CODE_ESCAPE << 7)))
                          << 16 * (q & 1);
        if (lane != row % 8 * 4 + owner) change = 0;
        put(4 * step + 2 * pair + row / 8, change);
    }
    template <int FROM = 0, int N = 4 * NSTEPS> __device__ void put(unsigned at, unsigned change) {
        if constexpr (N == 1)
            a[FROM / 4][FROM % 4] ^= change;
        else if (at < FROM + N / 2)
            put<FROM, N / 2>(at, change);
        else
            put<FROM + N / 2, N / 2>(at, change);
    }
};

#endif
