// Watches every load and store of kernels that are compiled with -fsanitize=thread, whose callbacks
// are defined here instead of by the compiler's runtime: bounds, races, what is read before it is
// written, and counts.
//
// Two accesses of a byte, one of them a store, are a race unless one thread makes both, or a
// barrier that names the memory lies between them: of the threadgroup, or of the simdgroup if both
// threads are in it. Nothing orders different threadgroups.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <link.h>

#include "state.h"

namespace emulator {

namespace {

struct Stamp {
    uint32_t thread; // 0: nobody
    uint32_t group_epoch, simd_epoch;
};

enum Readers : uint32_t { NONE, ONE_THREAD, ONE_SIMDGROUP, ONE_THREADGROUP, MANY };

struct Shadow {
    Stamp writer, reader;
    Readers readers;
    bool atomic;
};

// Memory that a kernel may use.
struct Area {
    uintptr_t base;
    size_t nbytes;
    int index; // of the buffer; MAX_BUFFERS for threadgroup memory
    bool watched;
    std::vector<Shadow> shadow;
};

struct Epochs {
    uint32_t group[2], simd[MAX_THREADS / LANES][2]; // of device memory, of threadgroup memory
};

std::vector<Area> areas;
Epochs epochs;
uintptr_t image_low, image_high;

// Static data of the library that holds the kernel.
int find_image(dl_phdr_info *info, size_t, void *) {
    auto target = reinterpret_cast<uintptr_t>(state.launch.kernel->call);
    uintptr_t low = ~uintptr_t(0), high = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const auto &header = info->dlpi_phdr[i];
        if (header.p_type != PT_LOAD) continue;
        low = std::min(low, uintptr_t(info->dlpi_addr + header.p_vaddr));
        high = std::max(high, uintptr_t(info->dlpi_addr + header.p_vaddr + header.p_memsz));
    }
    if (target < low || target >= high) return 0;
    image_low = low, image_high = high;
    return 1;
}

uint32_t self() {
    return running.group * MAX_THREADS + running.current + 1;
}
uint32_t group_of(uint32_t thread) {
    return (thread - 1) / MAX_THREADS;
}
uint32_t simd_of(uint32_t thread) {
    return (thread - 1) % MAX_THREADS / LANES;
}

Stamp stamp(int space) {
    return {self(), epochs.group[space], epochs.simd[running.current / LANES][space]};
}

bool before(const Stamp &past, const Stamp &now, Readers scope) {
    if (scope == NONE || (scope == ONE_THREAD && past.thread == now.thread)) return true;
    if (scope == MANY || group_of(past.thread) != group_of(now.thread)) return false;
    if (past.group_epoch < now.group_epoch) return true;
    return scope <= ONE_SIMDGROUP && simd_of(past.thread) == simd_of(now.thread) &&
           past.simd_epoch < now.simd_epoch;
}

Readers scope_of(const Stamp &a, const Stamp &b) {
    if (a.thread == b.thread) return ONE_THREAD;
    if (group_of(a.thread) != group_of(b.thread)) return MANY;
    return simd_of(a.thread) == simd_of(b.thread) ? ONE_SIMDGROUP : ONE_THREADGROUP;
}

struct Name {
    char text[32];
};

Name name_of(const Area &area) {
    Name name;
    snprintf(name.text, sizeof name.text, "buffer %d", area.index);
    if (area.index == MAX_BUFFERS) strcpy(name.text, "threadgroup memory");
    return name;
}

void add_reader(Shadow &shadow, const Stamp &now) {
    bool stale =
        shadow.readers == NONE ||
        (shadow.readers != MANY && group_of(shadow.reader.thread) == group_of(now.thread) &&
         shadow.reader.group_epoch < now.group_epoch);
    Readers scope = stale ? ONE_THREAD : std::max(shadow.readers, scope_of(shadow.reader, now));
    shadow.readers = scope;
    shadow.reader = now;
}

void check_byte(Area &area, size_t at, bool writes, bool atomic) {
    Shadow &shadow = area.shadow[at];
    Stamp now = stamp(area.index == MAX_BUFFERS);
    Readers wrote = shadow.writer.thread ? ONE_THREAD : NONE;
    bool both_atomic = atomic && shadow.atomic;
    if (!both_atomic && !before(shadow.writer, now, wrote)) {
        if (writes)
            find(DOUBLE_WRITE, "two threads write byte %zu of %s", at, name_of(area).text);
        else
            find(RACE, "byte %zu of %s is read while another thread writes it", at,
                 name_of(area).text);
    }
    if (writes) {
        if (!both_atomic && !before(shadow.reader, now, shadow.readers))
            find(RACE, "byte %zu of %s is written while another thread reads it", at,
                 name_of(area).text);
        shadow.writer = now;
        shadow.readers = NONE;
        shadow.atomic = atomic;
        return;
    }
    if (!shadow.writer.thread && area.index == MAX_BUFFERS)
        find(UNINITIALISED, "byte %zu of threadgroup memory is read and was never written", at);
    if (!atomic) add_reader(shadow, now);
}

bool is_private(uintptr_t p, size_t nbytes) {
    auto low = reinterpret_cast<uintptr_t>(running.fibers.low(running.current));
    auto high = reinterpret_cast<uintptr_t>(running.fibers.high(running.current));
    auto shared = reinterpret_cast<uintptr_t>(&state);
    return (p >= low && p + nbytes <= high) ||
           (p >= shared && p + nbytes <= shared + sizeof state) ||
           (p >= image_low && p + nbytes <= image_high);
}

void count(int index, size_t nbytes, bool writes) {
    Counts &counts = running.result->counts;
    (writes ? counts.stores : counts.loads)[index]++;
    (writes ? counts.store_bytes : counts.load_bytes)[index] += nbytes;
}

[[noreturn]] void report_stray(uintptr_t p, size_t nbytes, bool writes) {
    const Area *nearest = nullptr;
    long distance = 0;
    for (const Area &area : areas) {
        long d = p < area.base ? long(p - area.base) : long(p - area.base - area.nbytes);
        if (!nearest || labs(d) < labs(distance)) nearest = &area, distance = d;
    }
    fail(OUT_OF_BOUNDS, "%s of %zu bytes outside all memory, %ld bytes from the %s of %s",
         writes ? "a store" : "a load", nbytes, labs(distance), distance < 0 ? "start" : "end",
         nearest ? name_of(*nearest).text : "nothing");
}

} // namespace

void checker_access(const volatile void *address, size_t nbytes, bool writes, bool atomic) {
    if (!running.inside) return;
    auto p = reinterpret_cast<uintptr_t>(address);
    if (is_private(p, nbytes)) return;
    for (Area &area : areas) {
        if (p < area.base || p + nbytes > area.base + area.nbytes) continue;
        count(area.index, nbytes, writes);
        if (!area.watched) return;
        if (area.shadow.empty()) area.shadow.resize(area.nbytes);
        for (size_t i = 0; i < nbytes; i++)
            check_byte(area, p - area.base + i, writes, atomic);
        return;
    }
    report_stray(p, nbytes, writes);
}

void checker_begin_launch() {
    const Launch &launch = state.launch;
    areas.clear();
    for (int i = 0; i < MAX_BUFFERS; i++)
        if (launch.buffers[i].data)
            areas.push_back({reinterpret_cast<uintptr_t>(launch.buffers[i].data),
                             launch.buffers[i].nbytes,
                             i,
                             (launch.kernel->written >> i & 1) != 0,
                             {}});
    image_low = image_high = 0;
    dl_iterate_phdr(find_image, nullptr);
    running.inside = true;
}

void checker_begin_group() {
    epochs = {};
    for (Area &area : areas)
        if (area.index == MAX_BUFFERS && !area.shadow.empty())
            memset(area.shadow.data(), 0, area.nbytes * sizeof(Shadow));
}

void checker_new_array(int id) {
    const ThreadgroupArray &array = running.arrays[id];
    areas.push_back(
        {reinterpret_cast<uintptr_t>(array.memory.get()), array.nbytes, MAX_BUFFERS, true, {}});
}

void checker_group_barrier(int flags) {
    epochs.group[0] += flags & MEM_DEVICE ? 1 : 0;
    epochs.group[1] += flags & MEM_THREADGROUP ? 1 : 0;
}

void checker_simd_barrier(unsigned simdgroup, int flags) {
    epochs.simd[simdgroup][0] += flags & MEM_DEVICE ? 1 : 0;
    epochs.simd[simdgroup][1] += flags & MEM_THREADGROUP ? 1 : 0;
}

} // namespace emulator

// ---- The compiler's callbacks

using emulator::checker_access;

extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}

#define CALLBACKS(n)                                                                               \
    void __tsan_read##n(void *p) {                                                                 \
        checker_access(p, n, false, false);                                                        \
    }                                                                                              \
    void __tsan_write##n(void *p) {                                                                \
        checker_access(p, n, true, false);                                                         \
    }                                                                                              \
    void __tsan_unaligned_read##n(void *p) {                                                       \
        checker_access(p, n, false, false);                                                        \
    }                                                                                              \
    void __tsan_unaligned_write##n(void *p) {                                                      \
        checker_access(p, n, true, false);                                                         \
    }                                                                                              \
    void __tsan_read_write##n(void *p) {                                                           \
        checker_access(p, n, false, false);                                                        \
        checker_access(p, n, true, false);                                                         \
    }                                                                                              \
    void __tsan_unaligned_read_write##n(void *p) {                                                 \
        __tsan_read_write##n(p);                                                                   \
    }
CALLBACKS(1)
CALLBACKS(2)
CALLBACKS(4)
CALLBACKS(8)
CALLBACKS(16)

void *__tsan_memcpy(void *to, const void *from, size_t n) {
    checker_access(from, n, false, false);
    checker_access(to, n, true, false);
    return memcpy(to, from, n);
}

void *__tsan_memmove(void *to, const void *from, size_t n) {
    checker_access(from, n, false, false);
    checker_access(to, n, true, false);
    return memmove(to, from, n);
}

void *__tsan_memset(void *to, int value, size_t n) {
    checker_access(to, n, true, false);
    return memset(to, value, n);
}

// Older compilers call the library's functions; libraries of kernels are linked with --wrap.
void *__wrap_memcpy(void *to, const void *from, size_t n) {
    return __tsan_memcpy(to, from, n);
}
void *__wrap_memmove(void *to, const void *from, size_t n) {
    return __tsan_memmove(to, from, n);
}
void *__wrap_memset(void *to, int value, size_t n) {
    return __tsan_memset(to, value, n);
}
}
