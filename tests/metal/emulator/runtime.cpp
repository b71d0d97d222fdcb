// Runs launches: threads as fibers, where they wait for each other, and what is found wrong.

#include "runtime.h"

#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <numeric>

#include "state.h"

namespace emulator {

static State state;
Running running = {.state = &state};

const Place &place() { return state.threads[running.current].place; }
const Options &options() { return state.options; }

// ---- Findings

[[noreturn]] static void end_launch() {
    running.failed = true;
    running.fibers.leave();
    __builtin_unreachable();
}

static void record(Finding finding, const char *format, va_list arguments) {
    running.result->findings[finding]++;
    if (running.result->message[0]) return;
    char text[400];
    vsnprintf(text, sizeof text, format, arguments);
    const Place &p = place();
    snprintf(running.result->message, sizeof running.result->message,
             "%s: %s (thread %u of threadgroup %u)", state.launch.kernel->name, text,
             p.thread_index_in_threadgroup, running.group);
}

void fail(Finding finding, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    running.result->message[0] = 0;
    record(finding, format, arguments);
    va_end(arguments);
    end_launch();
}

void find(Finding finding, const char *format, ...) {
    bool allowed = state.options.allow >> finding & 1;
    va_list arguments;
    va_start(arguments, format);
    if (!allowed) running.result->message[0] = 0;
    record(finding, format, arguments);
    va_end(arguments);
    if (!allowed) end_launch();
}

// ---- Waiting

static const char *name_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool same_site(const Site &a, const Site &b) {
    return a.line == b.line && a.column == b.column && !strcmp(a.file, b.file);
}

static void wait_for(Wait what, const Site &site) {
    Thread &thread = state.threads[running.current];
    thread.wait = what;
    thread.site = site;
    running.fibers.leave();
}

static void wake(Wait what, unsigned first, unsigned count) {
    for (unsigned i = first; i < first + count && i < running.nthreads; i++)
        if (state.threads[i].wait == what) state.threads[i].wait = Wait::NOTHING;
}

static void complete(unsigned number) {
    Simdgroup &simd = state.simdgroups[number];
    simd.active[simd.turn & 1] = simd.arrived;
    simd.arrived = 0;
    simd.turn++;
    running.result->counts.simd++;
    wake(Wait::SIMD, number * LANES, LANES);
}

// Gives a value and waits until all live lanes have; returns which set of slots has them.
static unsigned meet(const void *value, size_t nbytes, const Site &site) {
    unsigned number = running.current / LANES, lane = running.current % LANES;
    Simdgroup &simd = state.simdgroups[number];
    if (simd.arrived && !same_site(simd.site, site))
        fail(STUCK, "lanes of a simdgroup meet at %s:%u and at %s:%u", name_of(site.file), site.line,
             name_of(simd.site.file), simd.site.line);
    simd.site = site;
    unsigned set = simd.turn & 1;
    if (nbytes > SLOT) fail(BAD_LAUNCH, "a simdgroup function of %zu bytes a lane", nbytes);
    memcpy(simd.slots[set][lane], value, nbytes);
    simd.arrived |= 1u << lane;
    if (simd.arrived == simd.live)
        complete(number);
    else
        wait_for(Wait::SIMD, site);
    return set;
}

static void release_barrier() {
    running.waiting = 0;
    running.result->counts.barriers++;
    bool complete_group = running.live == running.nthreads;
    wake(Wait::BARRIER, 0, running.nthreads);
    if (!complete_group)
        find(DIVERGENT_BARRIER, "only %u of %u threads reach the barrier at %s:%u", running.live,
             running.nthreads, name_of(running.barrier_site.file), running.barrier_site.line);
}

void threadgroup_barrier(int flags, Site site) {
    if (running.waiting && !same_site(running.barrier_site, site))
        find(DIVERGENT_BARRIER, "threads wait at different barriers, %s:%u and %s:%u",
             name_of(site.file), site.line, name_of(running.barrier_site.file),
             running.barrier_site.line);
    running.barrier_site = site;
    running.waiting++;
    if (running.waiting < running.live) {
        wait_for(Wait::BARRIER, site);
        return;
    }
    checker_group_barrier(flags);
    release_barrier();
}

void simdgroup_barrier(int flags, Site site) {
    unsigned number = running.current / LANES;
    unsigned turn = state.simdgroups[number].turn;
    bool last = (state.simdgroups[number].arrived | 1u << running.current % LANES) ==
                state.simdgroups[number].live;
    if (last) checker_simd_barrier(number, flags);
    meet(&turn, sizeof turn, site);
}

void shuffle(const void *value, void *out, size_t nbytes, unsigned from, Site site) {
    unsigned lane = running.current % LANES;
    Simdgroup &simd = state.simdgroups[running.current / LANES];
    unsigned set = meet(value, nbytes, site);
    if (from >= LANES) from = lane;
    if (simd.active[set] >> from & 1) {
        memcpy(out, simd.slots[set][from], nbytes);
        return;
    }
    find(INACTIVE_LANE, "lane %u reads lane %u, which has no value, at %s:%u", lane, from,
         name_of(site.file), site.line);
    memset(out, 0xFB, nbytes);
}

const char *gather(const void *value, size_t nbytes, Site site, uint32_t *active) {
    Simdgroup &simd = state.simdgroups[running.current / LANES];
    unsigned set = meet(value, nbytes, site);
    *active = simd.active[set];
    return simd.slots[set][0];
}

// ---- Memory

void *buffer(int index, size_t nbytes_needed) {
    const Buffer &b = state.launch.buffers[index];
    if (!b.data) return nbytes_needed ? state.zeros : nullptr;
    if (b.nbytes < nbytes_needed)
        fail(OUT_OF_BOUNDS, "buffer %d has %llu bytes, fewer than the %zu of its type", index,
             static_cast<unsigned long long>(b.nbytes), nbytes_needed);
    return b.data;
}

void *threadgroup_memory(int id, size_t nbytes) {
    ThreadgroupArray &array = running.arrays[id];
    if (!array.memory) {
        array.memory = std::make_unique<char[]>(nbytes);
        array.nbytes = nbytes;
        memset(array.memory.get(), state.options.fill, nbytes);
        checker_new_array(id);
    }
    return array.memory.get();
}

void *dynamic_threadgroup(int index) {
    return threadgroup_memory(-1 - index, state.launch.threadgroup_bytes[index]);
}

uint32_t atomic(AtomicOp op, const volatile void *object, uint32_t operand, bool is_signed) {
    checker_access(object, 4, op != ATOMIC_LOAD, true);
    auto word = static_cast<uint32_t *>(const_cast<void *>(object));
    uint32_t old = *word;
    bool less = is_signed ? static_cast<int32_t>(operand) < static_cast<int32_t>(old) : operand < old;
    switch (op) {
    case ATOMIC_LOAD: break;
    case ATOMIC_STORE: *word = operand; break;
    case ATOMIC_ADD: *word = old + operand; break;
    case ATOMIC_OR: *word = old | operand; break;
    case ATOMIC_AND: *word = old & operand; break;
    case ATOMIC_MIN: *word = less ? operand : old; break;
    case ATOMIC_MAX: *word = less ? old : operand; break;
    }
    return old;
}

// ---- Launching

// What a fiber runs: the kernel for its thread, then the end, which others may have waited for.
static void run_thread() {
    state.launch.kernel->call();
    unsigned number = running.current / LANES;
    Simdgroup &simd = state.simdgroups[number];
    simd.live &= ~(1u << running.current % LANES);
    if (simd.arrived && simd.arrived == simd.live) complete(number);
    running.live--;
    state.threads[running.current].wait = Wait::ENDED;
    if (running.waiting && running.waiting == running.live) release_barrier();
    running.fibers.leave();
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
        for (size_t i = order.size(); i > 1; i--) std::swap(order[i - 1], order[next_random() % i]);
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
             name_of(first->file), first->line, name_of(other ? other->file : first->file),
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
    for (unsigned i = 0; i < running.nthreads; i++) place_thread(i, group, groups, size);
    for (unsigned i = 0; i * LANES < running.nthreads; i++) {
        unsigned n = std::min(LANES, running.nthreads - i * LANES);
        state.simdgroups[i].live = n == LANES ? ~0u : (1u << n) - 1;
        state.simdgroups[i].arrived = 0;
    }
    for (auto &[id, array] : running.arrays)
        memset(array.memory.get(), state.options.fill, array.nbytes);
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

// Whether subnormals are flushed, for the calling thread; returns what was set before.
static uint64_t set_control(uint64_t value, bool flush) {
#if defined(__x86_64__)
    uint32_t before = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(flush ? value | 0x8040 : value & ~0x8040u);
    return before;
#else
    uint64_t before, now;
    asm volatile("mrs %0, fpcr" : "=r"(before));
    now = flush ? before | 1 << 24 : value & ~(uint64_t(1) << 24);
    asm volatile("msr fpcr, %0" ::"r"(now));
    return before;
#endif
}

} // namespace emulator

extern "C" int emulator_launch(const emulator::Launch *launch, emulator::Result *result) {
    using namespace emulator;
    memset(result, 0, sizeof *result);
    state.launch = *launch;
    state.options = launch->options;
    running.result = result;
    running.failed = false;
    running.arrays.clear();
    if (!check_launch()) return 1;
    checker_begin_launch();
#if defined(__x86_64__)
    uint64_t before = __builtin_ia32_stmxcsr();
#else
    uint64_t before = 0;
#endif
    set_control(before, launch->options.flush);
    run_groups();
    set_control(before, false);
    return running.failed;
}
