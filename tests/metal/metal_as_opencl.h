/* metal_as_opencl.h - what kernels use of Metal, in the words of C++ for OpenCL, where address
 * spaces are part of types as they are in Metal. Declarations only: for checking, not for running.
 *
 * half stands for bfloat: a type of 16 bits that converts as explicitly or not as Metal's does.
 */
#pragma OPENCL EXTENSION cl_khr_fp16 : enable

#define device __global
#define threadgroup __local
#define thread __private
#define METAL_FUNC static inline

typedef half bfloat;
typedef uchar uint8_t;
typedef ushort uint16_t;
typedef uint uint32_t;
typedef int int32_t;
typedef long int64_t;

template <class T, class U> T as_type(U value) {
    return __builtin_bit_cast(T, value);
}

struct simdgroup_float8x8 {
    float2 elements;
    __private float2 &thread_elements() __private { return elements; }
};
void simdgroup_multiply_accumulate(__private simdgroup_float8x8 &sum,
                                   const __private simdgroup_float8x8 &left,
                                   const __private simdgroup_float8x8 &right,
                                   const __private simdgroup_float8x8 &before);

struct simd_vote {
    typedef ulong vote_t;
    vote_t lanes;
    explicit operator vote_t() const { return lanes; }
};
simd_vote simd_ballot(bool is);
uint simd_shuffle(uint value, ushort lane);
float simd_shuffle_down(float value, ushort by);
uint simd_sum(uint value);

enum class mem_flags { mem_none, mem_device, mem_threadgroup };
void threadgroup_barrier(mem_flags flags);
void simdgroup_barrier(mem_flags flags);
