// What kernels ask for: meeting other threads, memory, and where things go wrong.

#include "runtime.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "state.h"

namespace emulator {

State state;
Running running;

const Place &place() {
    return state.threads[running.current].place;
}
const Options &options() {
    return state.options;
}

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

const char *file_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

bool same_site(const Site &a, const Site &b) {
    return a.line == b.line && a.column == b.column &&
           (a.file == b.file || !strcmp(a.file, b.file));
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
        fail(STUCK, "lanes of a simdgroup meet at %s:%u and at %s:%u", file_name(site.file),
             site.line, file_name(simd.site.file), simd.site.line);
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
             running.nthreads, file_name(running.barrier_site.file), running.barrier_site.line);
}

void end_thread() {
    unsigned number = running.current / LANES;
    Simdgroup &simd = state.simdgroups[number];
    simd.live &= ~(1u << running.current % LANES);
    if (simd.arrived && simd.arrived == simd.live) complete(number);
    running.live--;
    state.threads[running.current].wait = Wait::ENDED;
    if (running.waiting && running.waiting == running.live) release_barrier();
    running.fibers.leave();
}

void threadgroup_barrier(int flags, Site site) {
    if (running.waiting && !same_site(running.barrier_site, site))
        find(DIVERGENT_BARRIER, "threads wait at different barriers, %s:%u and %s:%u",
             file_name(site.file), site.line, file_name(running.barrier_site.file),
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
         file_name(site.file), site.line);
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

void static_threadgroup_memory(void *memory, size_t nbytes) {
    if (running.filled.insert(memory).second) memset(memory, state.options.fill, nbytes);
}

void *dynamic_threadgroup(int index) {
    return threadgroup_memory(-1 - index, state.launch.threadgroup_bytes[index]);
}

uint32_t atomic(AtomicOp op, const volatile void *object, uint32_t operand, bool is_signed) {
    checker_access(object, 4, op != ATOMIC_LOAD, true);
    auto word = static_cast<uint32_t *>(const_cast<void *>(object));
    uint32_t old = *word;
    bool less =
        is_signed ? static_cast<int32_t>(operand) < static_cast<int32_t>(old) : operand < old;
    switch (op) {
    case ATOMIC_LOAD:
        break;
    case ATOMIC_STORE:
        *word = operand;
        break;
    case ATOMIC_ADD:
        *word = old + operand;
        break;
    case ATOMIC_OR:
        *word = old | operand;
        break;
    case ATOMIC_AND:
        *word = old & operand;
        break;
    case ATOMIC_MIN:
        *word = less ? operand : old;
        break;
    case ATOMIC_MAX:
        *word = less ? old : operand;
        break;
    }
    return old;
}

} // namespace emulator

extern "C" void emulated_count(uint32_t floats, uint32_t integers, uint32_t others) {
    emulator::Counts &counts = emulator::running.result->counts;
    counts.float_ops += floats;
    counts.int_ops += integers;
    counts.other_ops += others;
}
