// The state of the running launch, shared by the runtime and the checker.

#pragma once

#include <map>
#include <memory>
#include <set>
#include <vector>

#include "fiber.h"
#include "runtime.h"

namespace emulator {

constexpr unsigned LANES = 32;
constexpr unsigned MAX_THREADS = 1024;

enum class Wait { NOTHING, SIMD, BARRIER, ENDED };

struct Thread {
    Place place;
    Wait wait;
    Site site;
};

struct Simdgroup {
    // Two sets, used in turn: a lane may give its next value before another has read the last.
    alignas(64) char slots[2][LANES][SLOT];
    uint32_t active[2];
    uint32_t arrived, live;
    unsigned turn;
    Site site;
};

// Plain data that kernels read through place(), options() and gather().
struct State {
    Thread threads[MAX_THREADS];
    Simdgroup simdgroups[MAX_THREADS / LANES];
    Options options;
    Launch launch;
    char zeros[256]; // what a reference to a buffer that is left out refers to
};

struct ThreadgroupArray {
    std::unique_ptr<char[]> memory;
    size_t nbytes;
};

struct Running {
    Result *result;
    Fibers fibers;
    std::map<int, ThreadgroupArray> arrays; // by place of declaration
    std::set<void *> filled;                // static arrays, in this threadgroup
    unsigned current, nthreads, live, waiting;
    uint32_t group; // number of the threadgroup
    Site barrier_site;
    bool inside, failed;
};

extern State state;
extern Running running;

// Counts a finding, which ends the launch unless it is allowed.
void find(Finding finding, const char *format, ...) __attribute__((format(printf, 2, 3)));

// What a thread does last: others may have waited for it.
void end_thread();

// What a failed launch was stuck at.
const char *file_name(const char *path);
bool same_site(const Site &a, const Site &b);

// ---- The checker, which sees memory accesses of kernels compiled for it.

void checker_begin_launch();
void checker_begin_group();
void checker_new_array(int id);
void checker_group_barrier(int flags);
void checker_simd_barrier(unsigned simdgroup, int flags);
void checker_access(const volatile void *address, size_t nbytes, bool writes, bool atomic);

} // namespace emulator
