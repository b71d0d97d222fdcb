/* r4_epilogue.cuh - what a launch does with products besides writing them: both wrap a `Rows` of
 * r4_engine.cuh. Every rounding that MLX makes between its own operations is made here too, and in
 * its arithmetic, that of BF16, which rounds an exact sum or product once.
 */
#ifndef BINADE_CUDA_R4_EPILOGUE_CUH
#define BINADE_CUDA_R4_EPILOGUE_CUH

#include "cuda/r4_sum.cuh"

/* y = r + W x. */
template <class Base> struct r4_added : Base {
    const unsigned short *r;

    __device__ r4_added(const Base &base, const unsigned short *r) : Base(base), r(r) {}

    __device__ void put(typename Base::Cursor at, unsigned lane, float sum) const {
        const unsigned short one = 0x3f80;
        if (lane > 0) return;
        size_t i = Base::place(at);
        Base::parts[0].y[i] = r4_fma_bf16(r[i], one, r4_round_bf16(Base::finish(at, sum)));
    }
};

/* y = act(G x) * (U x): a gated unit of two parts with as many rows, G and U. A warp takes row i of
 * G, then row i of U. act is a table of what MLX gives for each of the 65,536 BF16 values, asked
 * for while the second row is multiplied. `Base` counts rows of G only. */
template <class Base> struct r4_gated : Base {
    const unsigned short *act;
    mutable unsigned short activated; /* of the row of G before */

    struct Cursor {
        typename Base::Cursor at;
        bool is_up;
    };

    __device__ r4_gated(const Base &base, const unsigned short *act) : Base(base), act(act) {}

    __device__ typename Base::Cursor in_parts(Cursor c) const {
        if (c.is_up) c.at.row += Base::parts[0].taken;
        return c.at;
    }
    __device__ Cursor first() const { return {Base::first(), false}; }
    __device__ void advance(Cursor &c) const {
        if (c.is_up) Base::advance(c.at);
        c.is_up = !c.is_up;
    }
    __device__ bool has(Cursor c) const { return Base::has(c.at); }
    __device__ const unsigned char *bytes(Cursor c, unsigned row_nbytes) const {
        return Base::bytes(in_parts(c), row_nbytes);
    }
    __device__ auto header(Cursor c) const { return Base::header(in_parts(c)); }
    __device__ const unsigned *escapes(Cursor c) const { return Base::escapes(in_parts(c)); }
    __device__ unsigned bases(Cursor c) const { return Base::bases(in_parts(c)); }
    __device__ unsigned staged(Cursor c) const { return Base::staged(c.at); }

    __device__ void put(Cursor c, unsigned lane, float sum) const {
        const unsigned short minus_zero = 0x8000;
        if (lane > 0) return;
        unsigned short rounded = r4_round_bf16(Base::finish(c.at, sum));
        if (c.is_up)
            Base::parts[0].y[Base::place(c.at)] = r4_fma_bf16(activated, rounded, minus_zero);
        else
            activated = act[rounded];
    }
};

#endif
