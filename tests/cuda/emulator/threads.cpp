/* threads.cpp - threads as fibers: in which order they run, where they wait for each other. */
#include "state.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <unistd.h>

#include "fiber.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace emulator {

struct launch now;
static Fibers fibers;

/* Frames in heaps of the sanitizer's own do not go with fibers; the end of a program frees nothing.
 */
extern "C" const char *__asan_default_options() {
    return "detect_stack_use_after_return=0:detect_leaks=0";
}

void fail(const char *format, ...) {
    va_list list;
    va_start(list, format);
    fflush(stdout);
    /* The compiler has named a function: "... [KERNEL = &name]". */
    const char *name = now.of ? strstr(now.of->name, "= ") : nullptr;
    fprintf(stderr, "emulated CUDA: %.*s, block %u %u", name ? (int)strcspn(name + 3, "]") : 0,
            name ? name + 3 : "", blockIdx.x, blockIdx.y);
    if (now.me) fprintf(stderr, ", thread %u %u", threadIdx.x, threadIdx.y);
    fprintf(stderr, ": ");
    vfprintf(stderr, format, list);
    fprintf(stderr, "\n");
    va_end(list);
    _exit(3);
}

/* ---- Orders --------------------------------------------------------------------------------- */

enum order { UP, DOWN, RANDOM };

static uint64_t random_state;

static order read_order() {
    const char *text = getenv("EMULATED_ORDER");
    if (!text || !strcmp(text, "up")) return UP;
    if (!strcmp(text, "down")) return DOWN;
    random_state = strtoull(text, nullptr, 10);
    return RANDOM;
}

static order order_of_run() {
    static const order chosen = read_order();
    return chosen;
}

bool is_eager() {
    return order_of_run() == DOWN;
}

static unsigned draw_below(unsigned n) {
    random_state = random_state * 6364136223846793005 + 1442695040888963407;
    return (unsigned)((random_state >> 33) % n);
}

void put_in_order(std::vector<unsigned> &numbers) {
    const unsigned n = (unsigned)numbers.size();
    for (unsigned i = 0; i < n; i++)
        numbers[i] = order_of_run() == DOWN ? n - 1 - i : i;
    for (unsigned i = n; order_of_run() == RANDOM && i > 1; i--)
        std::swap(numbers[i - 1], numbers[draw_below(i)]);
}

/* ---- Meetings ------------------------------------------------------------------------------- */

unsigned lane_of_thread() {
    return now.here->number_of(*now.me) % 32;
}

unsigned *lane_words(unsigned lane) {
    return now.me[(int)lane - (int)lane_of_thread()].words;
}

/* Until a scheduler finds that what it waits for has come. */
void pause_thread(wait until) {
    now.me->wait = until;
    fibers.leave();
}

/* What lanes that have come came for, once all lanes of the mask have that have not ended. */
static bool end_meeting(thread *lanes, unsigned alive, const gathering &g) {
    unsigned ballot = 0;
    if (g.came != (g.mask & alive)) return false;
    for (unsigned left = g.came; left; left &= left - 1) {
        const unsigned lane = (unsigned)__builtin_ctz(left);
        ballot |= (unsigned)(lanes[lane].value != 0) << lane;
    }
    for (unsigned left = g.came; left; left &= left - 1) {
        const unsigned lane = (unsigned)__builtin_ctz(left);
        thread &t = lanes[lane];
        if (g.kind == SHUFFLE && (t.source >= 32 || !(g.came >> t.source & 1)))
            fail("lane %u shuffles from lane %u, which is not there", lane, t.source);
        t.result = g.kind == SHUFFLE ? lanes[t.source].value : ballot;
        t.wait = wait::NOTHING;
    }
    return true;
}

uint64_t meet(meeting kind, unsigned mask, uint64_t value, unsigned source) {
    const unsigned lane = lane_of_thread();
    thread &me = *now.me;
    warp &w = now.here->warp_of(me);
    if (!(mask >> lane & 1)) fail("a lane meets others without being in their mask");
    me.wait = wait::WARP;
    me.value = value, me.source = source;
    auto alike = [&](const gathering &g) { return g.kind == kind && g.mask == mask; };
    auto at = std::find_if(w.open.begin(), w.open.end(), alike);
    if (at == w.open.end()) at = w.open.insert(at, {kind, mask, 0});
    at->came |= 1u << lane;
    if (end_meeting(&me - lane, w.alive, *at))
        w.open.erase(at);
    else
        fibers.leave();
    return me.result;
}

/* The end of a lane may be all that others wait for. */
static void leave_warp(unsigned lane) {
    warp &w = now.here->warp_of(*now.me);
    w.alive &= ~(1u << lane);
    auto is_over = [&](const gathering &g) { return end_meeting(now.me - lane, w.alive, g); };
    w.open.erase(std::remove_if(w.open.begin(), w.open.end(), is_over), w.open.end());
}

/* Whether all threads that have not ended wait for all others; if so, they go on. */
static bool all_wait(block *first, block *last, wait what) {
    for (block *b = first; b < last; b++)
        for (const thread &t : b->threads)
            if (t.wait != what && t.wait != wait::ENDED) return false;
    for (block *b = first; b < last; b++)
        for (thread &t : b->threads)
            if (t.wait == what) t.wait = wait::NOTHING;
    return true;
}

void sync_block() {
    pause_thread(wait::BLOCK);
}

/* Whether as many threads have come to one of the numbers as meet there; they go on. */
static bool some_wait(block &b) {
    struct meeting_place {
        unsigned expected, ncame;
    } places[16] = {};
    bool any = false;
    for (const thread &t : b.threads) {
        if (t.wait != wait::SOME) continue;
        places[t.barrier].expected = t.parity;
        places[t.barrier].ncame++;
    }
    for (thread &t : b.threads) {
        if (t.wait != wait::SOME) continue;
        const meeting_place &at = places[t.barrier];
        if (at.ncame > at.expected || at.expected != t.parity)
            fail("%u threads, not %u, have come to meeting %u", at.ncame, t.parity, t.barrier);
        if (at.ncame < at.expected) continue;
        t.wait = wait::NOTHING;
        any = true;
    }
    return any;
}

void sync_some(unsigned number, unsigned count) {
    if (number >= 16 || count % 32) fail("no meeting %u of %u threads", number, count);
    now.me->barrier = number;
    now.me->parity = count;
    pause_thread(wait::SOME);
}

void sync_cluster() {
    pause_thread(wait::CLUSTER);
}

unsigned cluster_rank() {
    return now.here->rank;
}

/* ---- Running -------------------------------------------------------------------------------- */

/* The frame of this loop is never left: sanitizers have nothing to remember of it. */
__attribute__((no_sanitize("address"))) static void run_threads() {
    for (;;) {
        now.of->run(now.arguments);
        leave_warp(lane_of_thread());
        now.me->wait = wait::ENDED;
        now.here->nalive--;
        fibers.leave();
    }
}

static bool can_go(block &b, thread &t) {
    if (t.wait == wait::BARRIER) land_for(b, t.barrier);
    if (t.wait == wait::BARRIER && barrier_is_over(b, t.barrier, t.parity)) t.wait = wait::NOTHING;
    return t.wait == wait::NOTHING;
}

static void resume(block &b, unsigned number) {
    now.here = &b;
    now.me = &b.threads[number];
    threadIdx = now.me->index;
    blockIdx = b.index;
    fibers.enter(b.rank * (unsigned)b.threads.size() + number);
    now.me = nullptr;
}

/* Lets a warp run so many times to its next wait, or until it cannot; tells whether any lane did.
 */
static bool run_warp(block &b, unsigned w, unsigned ntimes) {
    const unsigned nlanes = std::min(32u, (unsigned)b.threads.size() - 32 * w);
    bool any = false, ran = true;
    for (; ran && ntimes > 0; ntimes--) {
        ran = false;
        for (unsigned i = 0; i < nlanes; i++) {
            unsigned lane = order_of_run() == DOWN ? nlanes - 1 - i : i;
            if (!can_go(b, b.threads[32 * w + lane])) continue;
            resume(b, 32 * w + lane);
            ran = any = true;
        }
    }
    return any;
}

static const char *const wait_names[] = {"runs",      "a warp",    "__syncthreads", "the cluster",
                                         "a barrier", "a meeting", "has ended"};

[[noreturn]] static void tell_deadlock() {
    std::string text;
    for (const block &b : now.blocks)
        for (unsigned i = 0, n; i < b.threads.size(); i += n) {
            const thread &t = b.threads[i];
            auto alike = [&](const thread &o) {
                return o.wait == t.wait && (t.wait != wait::BARRIER || o.barrier == t.barrier);
            };
            for (n = 1; i + n < b.threads.size() && alike(b.threads[i + n]);)
                n++;
            if (t.wait == wait::ENDED) continue;
            char line[160];
            snprintf(line, sizeof line, "\n  block %u, threads %u .. %u: %s", b.index.x, i,
                     i + n - 1, wait_names[(int)t.wait]);
            text += line;
            if (t.wait == wait::BARRIER)
                snprintf(line, sizeof line, " at %u, parity %u", t.barrier, t.parity);
            if (t.wait == wait::BARRIER) text += line;
        }
    fail("deadlock, no thread can go on%s", text.c_str());
}

/* Memory that a block before had is used again. */
static void begin_block(block &b, uint3 first, unsigned rank, unsigned nthreads) {
    b.index = {first.x + rank, first.y, first.z};
    b.rank = rank;
    b.threads.assign(nthreads, thread());
    b.warps.assign((nthreads + 31) / 32, warp());
    for (unsigned i = 0; i < nthreads; i++)
        b.warps[i / 32].alive |= 1u << i % 32;
    b.nalive = nthreads;
    if (!b.shared || b.shared_nbytes != now.shared_nbytes)
        b.shared = new_memory(1024, b.shared_nbytes = now.shared_nbytes);
    else
        memset(b.shared.get(), 0xff, now.shared_nbytes);
    b.arrivals.clear();
    b.nlanded = 0;
    b.variables.clear();
    b.writers.assign((now.shared_nbytes + 15) / 16, 0);
    b.landed.assign(b.writers.size(), 0);
    for (unsigned i = 0; i < nthreads; i++)
        b.threads[i].index = {i % blockDim.x, i / blockDim.x % blockDim.y,
                              i / blockDim.x / blockDim.y};
}

/* A kernel that is right has waited for all that it asked for. */
static void end_block(const block &b) {
    blockIdx = b.index;
    if (!b.arrivals.empty())
        fail("nobody has waited for the last copies that barrier %u counts",
             b.arrivals.begin()->first);
    for (const thread &t : b.threads)
        if (!t.copies.is_done())
            fail("nobody has waited for the last copies of thread %u", b.number_of(t));
}

void run_cluster(uint3 first, unsigned nthreads) {
    static unsigned nfibers;
    const unsigned nblocks = now.of->ncluster, nwarps = (nthreads + 31) / 32;
    std::vector<unsigned> warps(nblocks * nwarps);
    unsigned nalive = nblocks * nthreads;

    now.blocks.resize(nblocks);
    for (unsigned rank = 0; rank < nblocks; rank++)
        begin_block(now.blocks[rank], first, rank, nthreads);
    if (nalive > nfibers) fibers.start(nfibers = nalive, run_threads);
    while (nalive > 0) {
        bool ran = false;
        put_in_order(warps);
        for (unsigned w : warps)
            ran |= run_warp(now.blocks[w / nwarps], w % nwarps,
                            order_of_run() == RANDOM ? 1 + draw_below(4) : ~0u);
        nalive = 0;
        for (block &b : now.blocks) {
            nalive += b.nalive;
            ran |= some_wait(b);
            if (b.nalive > 0) ran |= all_wait(&b, &b + 1, wait::BLOCK);
        }
        if (nalive > 0)
            ran |= all_wait(now.blocks.data(), now.blocks.data() + nblocks, wait::CLUSTER);
        if (!ran && nalive > 0) tell_deadlock();
    }
    for (const block &b : now.blocks)
        end_block(b);
}

} // namespace emulator
