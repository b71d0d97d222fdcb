/* r4_skinny.cuh - few rows of x, up to 32, times a weight on tensor cores, in the order of
 * r4_gemm.cuh, but with W decoded straight to registers, as mma.sync wants it.
 *
 * A tile is 16 rows of W, the first operand, by NX rows of x. Its R4 comes to a ring of stages in
 * shared memory, a group of all its rows each. The warps of a tile take turns at K: each decodes
 * half a group to registers while others still multiply what comes before, waits for the sums of
 * the half before, adds its own and hands the sums on. Further warps copy x to slots, half a group
 * of columns each, that all tiles share. The blocks of a cluster have a split of K each, and share
 * the adding.
 *
 * Lane 4 g + t has rows g and g + 8 of W, of each 8 of x row g, and of these columns 4 t .. 4 t + 3
 * of every 16: the order of columns within a step changes no bit (r4_mma_plain.h).
 */
#ifndef BINADE_CUDA_R4_SKINNY_CUH
#define BINADE_CUDA_R4_SKINNY_CUH

#include "cuda/r4_gemm_splits.cuh"
#include "cuda/r4_skinny_copy.cuh"
#include "cuda/r4_skinny_decode.cuh"

template <int PER_LANE, int NX, int NSPLITS> struct r4_skinny : r4_skinny_stages<NX, NSPLITS> {
    using Half = r4_skinny_half<PER_LANE>;
    enum { NX_TILES = NX / 8 };

    using Stages = r4_skinny_stages<NX, NSPLITS>;
    using Stages::advance, Stages::copies, Stages::copy, Stages::copy_step, Stages::first_row;
    using Stages::ask, Stages::nslices_of, Stages::tell;
    using Stages::block, Stages::items, Stages::tile, Stages::turn, Stages::lane;
    using typename Stages::place;

    __device__ unsigned g() const { return lane / 4; }
    __device__ unsigned t() const { return lane % 4; }

    /* ---- Escapes -------------------------------------------------------------------------------
     */

    /* Lanes 2 r and 2 r + 1 hold every second escape of row r of the tile: `held` is the next, ~0
     * if there is none. */
    struct escapes {
        unsigned held, after, next, end;
    };

    __device__ static unsigned half_of(unsigned escape) { return (escape >> 8) / Half::NCOLS; }

    /* To the next. The one after it is asked for, so that nothing waits for memory. */
    __device__ void next_escape(escapes &e) const {
        e.held = e.after;
        e.after = ~0u;
        if (e.next < e.end) e.after = items.part.escapes[e.next];
        e.next += 2;
    }

    /* Where the escapes of this lane's row begin and end. */
    __device__ uint2 read_header(unsigned item) const {
        if (!items.has(item)) return make_uint2(0, 0);
        const r4_row *row = items.part.rows + first_row(item) + lane / 2;
        return make_uint2(row[0].escape_start, row[1].escape_start);
    }

    __device__ escapes begin(uint2 header) const {
        const unsigned *all = items.part.escapes;
        escapes e = {~0u, ~0u, header.x, header.y};
        unsigned end = NSPLITS > 1 ? e.end : e.next;
        while (e.next < end) { /* the first that is not before this split of K */
            unsigned middle = e.next + (end - e.next) / 2;
            if (half_of(all[middle]) < 2 * block.group0())
                e.next = middle + 1;
            else
                end = middle;
        }
        e.next += lane % 2;
        next_escape(e);
        next_escape(e);
        return e;
    }

    /* Gives the weights of a half that escaped their exponents, one after another. */
    __device__ void patch(Half &w, unsigned half, escapes &e, unsigned bases) const {
        while (__any_sync(~0u, half_of(e.held) <= half)) {
            unsigned lanes = __ballot_sync(~0u, half_of(e.held) == half);
            for (; lanes; lanes &= lanes - 1) {
                const unsigned from = (unsigned)__ffs((int)lanes) - 1;
                w.patch(__shfl_sync(~0u, e.held, (int)from), from / 2, lane, bases);
            }
            if (half_of(e.held) <= half) next_escape(e);
            __syncwarp();
        }
    }

    /* ---- Multiplying ---------------------------------------------------------------------------
     */

    /* Steps at once, x of which is asked for before the ones before are multiplied. */
    static constexpr int nsteps_ahead = NX_TILES >= 4 ? 1 : 4 / NX_TILES;
    struct x_ahead {
        uint2 b[nsteps_ahead * NX_TILES];
    };

    template <int STEP, int I = 0> __device__ static void read_x(x_ahead &x, unsigned at) {
        constexpr int step = STEP + I / NX_TILES, m = I % NX_TILES;
        x.b[I] = r4_shared8<32 * step + 8 * m * R4_SKINNY_X_ROW_NBYTES>(at);
        if constexpr (I + 1 < nsteps_ahead * NX_TILES) read_x<STEP, I + 1>(x, at);
    }
    /* Steps from STEP on; x: theirs. */
    template <int STEP = 0>
    __device__ void add_steps(float c[NX_TILES][4], const Half &w, const x_ahead &x, unsigned at,
                              unsigned unit) const {
        x_ahead next;
        if constexpr (STEP + nsteps_ahead < Half::NSTEPS) read_x<STEP + nsteps_ahead>(next, at);
#pragma unroll
        for (int i = 0; i < nsteps_ahead * NX_TILES; i++) {
            const int step = STEP + i / NX_TILES;
            const unsigned b[2] = {x.b[i].x, x.b[i].y};
            r4_mma_if(block.has_unit(unit + step / Half::UNIT_NSTEPS), c[i % NX_TILES], w.a[step],
                      b);
        }
        if constexpr (STEP + nsteps_ahead < Half::NSTEPS)
            add_steps<STEP + nsteps_ahead>(c, w, next, at, unit);
    }

    /* ---- Sums ----------------------------------------------------------------------------------
     */

    template <int M = 0> __device__ static void hand_on(const float c[NX_TILES][4], unsigned at) {
        r4_put_shared_floats<512 * M>(at, c[M]);
        if constexpr (M + 1 < NX_TILES) hand_on<M + 1>(c, at);
    }
    template <int M = 0> __device__ static void receive(float c[NX_TILES][4], unsigned at) {
        const uint4 v = r4_shared16<512 * M>(at);
        c[M][0] = __uint_as_float(v.x), c[M][1] = __uint_as_float(v.y);
        c[M][2] = __uint_as_float(v.z), c[M][3] = __uint_as_float(v.w);
        if constexpr (M + 1 < NX_TILES) receive<M + 1>(c, at);
    }

    /* Sums of 8 rows of x, the m-th such: two neighbours with row g of W, then with row g + 8. */
    __device__ void put(const float c[4], unsigned item, unsigned m) const {
        const size_t taken = items.part.taken;
        const unsigned row = 8 * m + 2 * t();
        unsigned short *y =
            items.part.y + row * taken + items.row_of(item) + R4_SKINNY_NROWS * tile + g();
#pragma unroll
        for (unsigned i = 0; i < 4; i++)
            if (row + i % 2 < items.nx) y[i % 2 * taken + i / 2 * 8] = r4_round_bf16(c[i]);
    }

    /* What a split of K has summed is where it was handed on; each block adds that of some tiles.
     */
    __device__ void put_splits(unsigned item) const {
        const unsigned at = block.tile(tile) + 16 * lane;
#pragma unroll 1
        for (unsigned m = turn; m < NX_TILES; m += block.nturns) {
            float sums[4];
            r4_add_splits<NSPLITS>(sums, at + 512 * m, 4);
            put(sums, item, m);
        }
    }

    /* ---- A warp's turns ------------------------------------------------------------------------
     */

    /* A turn: half of an item; nth: counted through all items, as slots and stages are. */
    struct state {
        unsigned item, half, nth;
        uint2 header; /* of the item behind */
        escapes e;
        place next;      /* what is copied next */
        unsigned parity; /* of the barrier that this warp's turn waits for */
        float c[NX_TILES][4];
    };

    __device__ bool takes_turns() const {
        return block.nturns > 1;
    }

    __device__ void begin_item(state &s) const {
        s.e = begin(s.header);
        s.header = read_header(items.next(s.item));
    }

    /* What needs no barrier: escapes' places and the first copy are asked for. */
    __device__ void begin_early(state &s) const {
        s.item = items.first(), s.half = s.nth = turn, s.parity = 0;
        s.header = read_header(s.item);
        s.next = {s.item, block.group0(), 0};
        if (!copies()) return;
        advance(s.next, turn / 2);
        if (items.has(s.next.item)) ask(s.next);
    }
    __device__ void begin(state &s) const {
        if (copies() && items.has(s.next.item)) tell(s.next);
        begin_item(s); /* escapes are asked for before memory has more to do */
        if (!copies()) return;
#pragma unroll 1
        for (unsigned i = turn / 2 + copy_step(); i < block.nstages; i += copy_step())
            copy(s.next);
    }

    /* Half a group to registers. */
    __device__ void read(state &s, Half &w, unsigned bases) const {
        const unsigned group = block.group0() + s.half / 2, nth_group = s.nth / 2;
        const unsigned stage = nth_group & (block.nstages - 1);
        const unsigned full = block.stage_full(tile, stage);
        /* A warp that takes all turns has waited for the second half with the first. */
        if (takes_turns() || s.half % 2 == 0)
            r4_wait(full, nth_group >> r4_log2(block.nstages) & 1);
        w.read(block.stages(tile) + stage * R4_SKINNY_STAGE_NBYTES, s.half % 2, nslices_of(group),
               lane, bases);
        __syncwarp();
        if (lane == 0) r4_arrive(full + 8);
        if (copies() && s.half % 2 == 1) copy(s.next);
        patch(w, block.group0() * 2 + s.half, s.e, bases);
    }

    /* Adds a half to the sums of those before. sums: where these are handed on; x_at: this lane's
     * place in a slot. */
    __device__ void multiply(state &s, const Half &w, unsigned sums, unsigned x_at) const {
        const unsigned slot = s.nth & (block.nslots - 1), at = block.slot(slot) + x_at;
        const unsigned next_turn = turn + 1 == block.nturns ? 0 : turn + 1;
        const bool is_last = s.half + 1 == block.nhalves();
        x_ahead x;
        r4_wait(block.slot_full(slot), s.nth >> r4_log2(block.nslots) & 1);
        read_x<0>(x, at);
        if (takes_turns() && s.nth > 0) {
            r4_wait(block.turn(tile, turn), s.parity);
            s.parity ^= 1;
        }
        if (s.half == 0) {
#pragma unroll
            for (unsigned i = 0; i < NX_TILES * 4; i++)
                s.c[i / 4][i % 4] = 0;
        } else if (takes_turns()) {
            receive(s.c, sums);
        }
        add_steps(s.c, w, x, at, (block.group0() * 2 + s.half) * R4_SKINNY_NUNITS);
        if (is_last ? NSPLITS > 1 : takes_turns()) hand_on(s.c, sums);
        __syncwarp();
        if (lane == 0) {
            if (takes_turns()) r4_arrive(block.turn(tile, next_turn));
            r4_arrive(block.slot_full(slot) + 8);
        }
        if constexpr (NSPLITS == 1) {
#pragma unroll
            for (unsigned m = 0; is_last && m < NX_TILES; m++)
                put(s.c[m], s.item, m);
        }
    }

    __device__ void run(state &s) const {
        const unsigned sums = block.tile(tile) + 16 * lane;
        const unsigned x_at = r4_hide(g() * R4_SKINNY_X_ROW_NBYTES + 8 * t());
        const unsigned bases = r4_hide(items.part.base << 7 | items.part.base << 23);
        begin(s);
#pragma unroll 1
        for (;; s.nth += block.nturns, s.half += block.nturns) {
            const bool is_over = s.half >= block.nhalves();
            if (is_over) {
                s.half -= block.nhalves();
                s.item = items.next(s.item);
            }
            if (!items.has(s.item)) break;
            if (is_over) begin_item(s);
            Half w;
            read(s, w, bases);
            multiply(s, w, sums, x_at);
        }
        if constexpr (NSPLITS > 1) { /* one item a cluster */
            __syncwarp();
            r4_sync_cluster();
            if (tile % NSPLITS == r4_cluster_rank()) put_splits(items.first());
            __syncwarp();
            r4_sync_cluster(); /* no block goes before its sums are read */
        }
    }
};

/* Columns from column0 to column1 of K. shared: 16-byte aligned; shape: as r4_gemm_grid.c chooses.
 */
template <int PER_LANE, int NX, int NSPLITS>
static __device__ __forceinline__ void
r4_multiply_skinny(const r4_part &part, const unsigned short *x, unsigned nx, unsigned ncols,
                   unsigned column0, unsigned column1, unsigned shared,
                   const r4_gemm_shape &shape) {
    const r4_skinny_block<NX> block = {r4_hide(shared),         ncols,
                                       column0 / R4_UNIT_NCOLS, column1 / R4_UNIT_NCOLS,
                                       (unsigned)shape.nslots,  (unsigned)shape.nstages,
                                       (unsigned)shape.nturns};
    const unsigned ntiles = (unsigned)shape.height / R4_SKINNY_NROWS, lane = threadIdx.x % 32;
    const r4_skinny_items<NSPLITS> items = {part, nx, (unsigned)shape.height};
    const unsigned warp = r4_warp(), i = warp - R4_SKINNY_NCOPIERS(NX);
    const bool multiplies = warp >= R4_SKINNY_NCOPIERS(NX);
    using Multiplier = r4_skinny<PER_LANE, NX, NSPLITS>;
    const Multiplier multiplier = {
        {block, items, i >> r4_log2(block.nturns), i & (block.nturns - 1), lane}};
    typename Multiplier::state s;

    if (multiplies) multiplier.begin_early(s);
    if (lane == 0) block.init(warp, ntiles);
    __syncthreads();
    if (multiplies) {
        multiplier.run(s);
    } else {
        r4_skinny_copy_x(block, items, x, warp, lane);
        r4_join_cluster<NSPLITS>();
    }
}

#endif
