// Runs launches: threadgroup after threadgroup, each thread a fiber.

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <numeric>

#include "state.h"

namespace emulator {

// What a fiber runs.
static void run_thread() {
    state.launch.kernel->call();
    end_thread();
}

static uint32_t next_random() {
    uint32_t &x = state.options.seed;
    x ^= x << 13, x ^= x >> 17, x ^= x << 5;
    return x;
}

static void arrange(std::vector<uint32_t> &order) {
    if (state.options.order == 1)
        std::iota(order.rbegin(), order.rend(), 0u);
    else
        std::iota(order.begin(), order.end(), 0u);
    if (state.options.order == 2)
        for (size_t i = order.size(); i > 1; i--)
            std::swap(order[i - 1], order[next_random() % i]);
}

static void report_stuck() {
    const Site *first = nullptr, *other = nullptr;
    for (unsigned i = 0; i < running.nthreads; i++) {
        if (state.threads[i].wait == Wait::ENDED) continue;
        if (!first)
            first = &state.threads[i].site;
        else if (!same_site(*first, state.threads[i].site))
            other = &state.threads[i].site;
    }
    running.failed = true;
    running.result->findings[STUCK]++;
    snprintf(running.result->message, sizeof running.result->message,
             "%s: threads wait for each other at %s:%u and %s:%u", state.launch.kernel->name,
             file_name(first->file), first->line, file_name(other ? other->file : first->file),
             other ? other->line : 0);
}

// Lets thread after thread run until each waits or has ended.
static bool run_pass(const std::vector<uint32_t> &order, unsigned first, unsigned end) {
    bool moved = false;
    for (unsigned k = first; k < end && !running.failed; k++) {
        if (state.threads[order[k]].wait != Wait::NOTHING) continue;
        running.current = order[k];
        running.fibers.enter(order[k]);
        moved = true;
    }
    return moved;
}

static void run_threads() {
    std::vector<uint32_t> order(running.nthreads);
    arrange(order);
    unsigned step = state.options.order == 3 ? LANES : running.nthreads;
    while (running.live && !running.failed) {
        if (state.options.order == 2) arrange(order);
        bool moved = false;
        for (unsigned first = 0; first < running.nthreads; first += step) {
            unsigned end = std::min(first + step, running.nthreads);
            while (run_pass(order, first, end) && !running.failed) {
                moved = true;
                if (state.options.order != 3) break;
            }
        }
        if (!moved && !running.failed) report_stuck();
    }
}

static void place_thread(unsigned i, Uint3 group, Uint3 groups, Uint3 size) {
    const Launch &launch = state.launch;
    Place &p = state.threads[i].place;
    p.thread_position_in_threadgroup = {i % size.x, i / size.x % size.y, i / size.x / size.y};
    p.threadgroup_position_in_grid = group;
    p.thread_position_in_grid = {
        group.x * launch.threadgroup.x + p.thread_position_in_threadgroup.x,
        group.y * launch.threadgroup.y + p.thread_position_in_threadgroup.y,
        group.z * launch.threadgroup.z + p.thread_position_in_threadgroup.z};
    p.threads_per_grid = launch.grid;
    p.threadgroups_per_grid = groups;
    p.threads_per_threadgroup = size;
    p.thread_index_in_threadgroup = i;
    p.thread_index_in_simdgroup = i % LANES;
    p.simdgroup_index_in_threadgroup = i / LANES;
    p.simdgroups_per_threadgroup = (size.x * size.y * size.z + LANES - 1) / LANES;
    p.threads_per_simdgroup = LANES;
    state.threads[i].wait = Wait::NOTHING;
}

static void run_group(Uint3 group, Uint3 groups) {
    const Uint3 &grid = state.launch.grid, &full = state.launch.threadgroup;
    // Groups at the grid's edges are smaller.
    Uint3 size = {std::min(full.x, grid.x - group.x * full.x),
                  std::min(full.y, grid.y - group.y * full.y),
                  std::min(full.z, grid.z - group.z * full.z)};
    running.nthreads = running.live = size.x * size.y * size.z;
    running.waiting = 0;
    for (unsigned i = 0; i < running.nthreads; i++)
        place_thread(i, group, groups, size);
    for (unsigned i = 0; i * LANES < running.nthreads; i++) {
        unsigned n = std::min(LANES, running.nthreads - i * LANES);
        state.simdgroups[i].live = n == LANES ? ~0u : (1u << n) - 1;
        state.simdgroups[i].arrived = 0;
    }
    for (auto &[id, array] : running.arrays)
        memset(array.memory.get(), state.options.fill, array.nbytes);
    running.filled.clear();
    checker_begin_group();
    running.fibers.start(running.nthreads, run_thread);
    run_threads();
}

static bool refuse(const char *what) {
    running.failed = true;
    running.result->findings[BAD_LAUNCH]++;
    snprintf(running.result->message, sizeof running.result->message, "%s: %s",
             state.launch.kernel->name, what);
    return false;
}

static bool check_launch() {
    const Launch &launch = state.launch;
    uint64_t threads = uint64_t(launch.threadgroup.x) * launch.threadgroup.y * launch.threadgroup.z;
    if (!threads || threads > MAX_THREADS) return refuse("a threadgroup has 1 to 1024 threads");
    if (launch.kernel->max_threads && threads > launch.kernel->max_threads)
        return refuse("more threads in a threadgroup than the kernel declares");
    for (int i = 0; i < MAX_BUFFERS; i++) {
        if (!(launch.kernel->buffers >> i & 1) && launch.buffers[i].data)
            return refuse("a buffer that the kernel has no argument for");
        if ((launch.kernel->buffers & ~launch.unset) >> i & 1 && !launch.buffers[i].data)
            return refuse("an argument without its buffer");
        if ((launch.kernel->dynamic >> i & 1) && !launch.threadgroup_bytes[i])
            return refuse("a threadgroup argument without its size");
    }
    return true;
}

static void run_groups() {
    const Launch &launch = state.launch;
    Uint3 groups = {(launch.grid.x + launch.threadgroup.x - 1) / launch.threadgroup.x,
                    (launch.grid.y + launch.threadgroup.y - 1) / launch.threadgroup.y,
                    (launch.grid.z + launch.threadgroup.z - 1) / launch.threadgroup.z};
    std::vector<uint32_t> order(size_t(groups.x) * groups.y * groups.z);
    arrange(order);
    for (uint32_t number : order) {
        running.group = number;
        run_group({number % groups.x, number / groups.x % groups.y, number / groups.x / groups.y},
                  groups);
        if (running.failed) return;
    }
}

// Sets whether subnormals are flushed to 0, in operands and results.
static void set_flush(bool flush) {
#if defined(__x86_64__)
    uint32_t control = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(flush ? control | 0x8040 : control & ~0x8040u);
#else
    uint64_t control;
    asm volatile("mrs %0, fpcr" : "=r"(control));
    control = flush ? control | 1 << 24 : control & ~(uint64_t(1) << 24);
    asm volatile("msr fpcr, %0" ::"r"(control));
#endif
}

} // namespace emulator

extern "C" int emulator_launch(const emulator::Launch *launch, emulator::Result *result) {
    using namespace emulator;
    memset(result, 0, sizeof *result);
    state.launch = *launch;
    state.options = launch->options;
    running.result = result;
    if (running.failed) running.fibers.forget();
    running.failed = false;
    running.arrays.clear();
    if (!check_launch()) return 1;
    checker_begin_launch();
    set_flush(launch->options.flush);
    run_groups();
    set_flush(false);
    return running.failed;
}
