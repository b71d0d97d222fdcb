// What compiled kernels ask of the emulator, and what Python asks of it.
//
// A launch runs threadgroup after threadgroup; in each, one fiber for each thread, until all have
// ended. Simdgroup functions and barriers are where fibers wait for each other.

#pragma once

#include <cstddef>
#include <cstdint>

namespace emulator {

// Where in a source a simdgroup function or a barrier was called. Threads that wait for each other
// must wait at the same place.
struct Site {
    const char *file;
    unsigned line;
    unsigned column;
};

struct Uint3 {
    uint32_t x, y, z;
};

// Where the running thread is, under Metal's names.
struct Place {
    Uint3 thread_position_in_grid;
    Uint3 thread_position_in_threadgroup;
    Uint3 threadgroup_position_in_grid;
    Uint3 threads_per_grid;
    Uint3 threadgroups_per_grid;
    Uint3 threads_per_threadgroup;
    uint32_t thread_index_in_threadgroup;
    uint32_t thread_index_in_simdgroup;
    uint32_t simdgroup_index_in_threadgroup;
    uint32_t simdgroups_per_threadgroup;
    uint32_t threads_per_simdgroup;
};

// Choices that hardware makes and no document tells.
struct Options {
    int32_t order; // of threads: 0 ascending, 1 descending, 2 random, 3 simdgroups one by one
    int32_t flush; // subnormals become 0
    int32_t mma;   // order inside a matrix step: 0..5
    int32_t dot;   // order inside a dot product: 0..3
    int32_t sum;   // order inside simd_sum: 0..2
    int32_t fill;  // every byte of threadgroup memory before it is written
    uint32_t allow;
    uint32_t seed;
};

// Findings; bit 1 << kind of Options.allow makes one no error.
enum Finding {
    DIVERGENT_BARRIER,
    INACTIVE_LANE,
    RACE,
    DOUBLE_WRITE,
    UNINITIALISED,
    OUT_OF_BOUNDS,
    STUCK,
    BAD_LAUNCH,
    NFINDINGS
};

constexpr int MAX_BUFFERS = 31;

struct Counts {
    uint64_t loads[MAX_BUFFERS + 1]; // the last is threadgroup memory
    uint64_t load_bytes[MAX_BUFFERS + 1];
    uint64_t stores[MAX_BUFFERS + 1];
    uint64_t store_bytes[MAX_BUFFERS + 1];
    uint64_t barriers, simd, matrix;
    uint64_t float_ops, int_ops, other_ops;
};

struct Buffer {
    void *data;
    uint64_t nbytes;
};

struct Result {
    uint64_t findings[NFINDINGS];
    Counts counts;
    char message[512];
};

// A kernel in a compiled library.
struct Kernel {
    const char *name;
    void (*call)();
    uint32_t buffers; // bit n: there is a [[buffer(n)]]
    uint32_t written; // bit n: it may be written
    uint32_t dynamic; // bit n: there is a [[threadgroup(n)]]
    uint32_t max_threads;
};

struct Constant {
    int32_t index;
    uint32_t nbytes;
    void *value;
};

struct Library {
    uint32_t nkernels, nconstants;
    const Kernel *kernels;
    const Constant *constants;
};

struct Launch {
    const Kernel *kernel;
    Buffer buffers[MAX_BUFFERS];
    uint32_t threadgroup_bytes[MAX_BUFFERS];
    uint32_t unset; // bit n: buffer n is left out on purpose
    Uint3 grid, threadgroup;
    Options options;
};

// ---- Asked by kernels

const Place &place();
const Options &options();
void *buffer(int index, size_t nbytes_needed);
void *dynamic_threadgroup(int index);
void *threadgroup_memory(int id, size_t nbytes);
// Static memory that takes the place of threadgroup memory: filled at a threadgroup's start.
void static_threadgroup_memory(void *memory, size_t nbytes);

enum { MEM_NONE = 0, MEM_DEVICE = 1, MEM_THREADGROUP = 2 };
void threadgroup_barrier(int flags, Site site);
void simdgroup_barrier(int flags, Site site);

// Waits for the simdgroup, then copies the value of lane `from`, or of the own lane if `from` is
// past the simdgroup's end.
void shuffle(const void *value, void *out, size_t nbytes, unsigned from, Site site);

// Waits for the simdgroup, then hands out all values, `stride` bytes apart, and the mask of lanes
// that gave one.
const char *gather(const void *value, size_t nbytes, Site site, uint32_t *active);
constexpr size_t SLOT = 32;

// d = a b + c for 8 x 8 matrices, two elements a lane.
void multiply_accumulate(float d[2], const float a[2], const float b[2], const float c[2],
                         bool fused, Site site);

enum AtomicOp {
    ATOMIC_LOAD,
    ATOMIC_STORE,
    ATOMIC_ADD,
    ATOMIC_OR,
    ATOMIC_AND,
    ATOMIC_MIN,
    ATOMIC_MAX
};
uint32_t atomic(AtomicOp op, const volatile void *object, uint32_t operand, bool is_signed);

[[noreturn]] void fail(Finding finding, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

} // namespace emulator

extern "C" int emulator_launch(const emulator::Launch *launch, emulator::Result *result);
