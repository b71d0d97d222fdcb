/* shared.cpp - a block's shared memory: addresses, copies, barriers, the operands of wgmma. */
#include "state.h"

#include <algorithm>
#include <cstdlib>

#include "cuda/r4_mma_plain.h"

namespace emulator {

void freeing::operator()(void *memory) const {
    free(memory);
}

memory new_memory(size_t alignment, size_t nbytes) {
    void *at = nullptr;
    if (nbytes == 0) return nullptr;
    if (posix_memalign(&at, std::max(alignment, sizeof(void *)), nbytes)) abort();
    memset(at, 0xff, nbytes);
    return memory((unsigned char *)at);
}

/* ---- Variables --------------------------------------------------------------------------------
 * __shared__ is thread_local, and with -femulated-tls the compiler asks for the place of such a
 * variable by this function.
 */

struct variable {
    size_t nbytes, alignment;
    void *index, *initial;
};

extern "C" void *__emutls_get_address(variable *v) {
    if (!now.me) fail("a shared variable outside a kernel");
    if (v->nbytes == 0) return now.here->shared.get(); /* declared extern, without a size */
    memory &own = now.here->variables[v];
    if (!own) own = new_memory(v->alignment, v->nbytes);
    return own.get();
}

/* Every name that kernels have for their dynamic shared memory. */
extern "C" {
extern variable xs __asm__("__emutls_v.xs"), r4_shared __asm__("__emutls_v.r4_shared");
variable xs = {0, 0, nullptr, nullptr}, r4_shared = xs;
}

size_t address_of_shared(const void *pointer) {
    size_t at = (size_t)((const unsigned char *)pointer - now.here->shared.get());
    if (at > now.shared_nbytes) fail("a pointer is not to dynamic shared memory");
    return SHARED_BASE + at;
}

void *shared_of_address(size_t address) {
    return bytes_of(*now.here, (unsigned)address, 0);
}

unsigned char *bytes_of(const block &b, unsigned address, unsigned nbytes) {
    if (address < SHARED_BASE || address - SHARED_BASE + nbytes > now.shared_nbytes)
        fail("shared address %u, %u bytes, of %zu from %d on", address, nbytes, now.shared_nbytes,
             SHARED_BASE);
    if (nbytes > 0 && address % nbytes)
        fail("shared address %u, %u bytes, is not aligned", address, nbytes);
    return b.shared.get() + (address - SHARED_BASE);
}

unsigned char *shared_at(unsigned address, unsigned nbytes) {
    return bytes_of(*now.here, address, nbytes);
}

unsigned char *shared_of_block(unsigned address, unsigned nbytes, unsigned rank) {
    if (rank >= now.blocks.size() || now.blocks[rank].nalive == 0)
        fail("block %u of the cluster has ended, or is none", rank);
    return bytes_of(now.blocks[rank], address, nbytes);
}

/* ---- Publishing ----------------------------------------------------------------------------- */

void mark_written(unsigned address) {
    thread &me = *now.me;
    const unsigned number = now.here->number_of(me) + 1;
    const unsigned chunk = (address - SHARED_BASE) / 16;
    unsigned &writer = now.here->writers[chunk];
    now.here->landed[chunk] = 0;
    if (writer == number) return;
    writer = number;
    me.written.push_back(chunk);
}

void publish() {
    thread &me = *now.me;
    const unsigned number = now.here->number_of(me) + 1;
    for (unsigned chunk : me.written)
        if (now.here->writers[chunk] == number) now.here->writers[chunk] = 0;
    me.written.clear();
    me.published_at = now.here->nlanded;
}

const unsigned char *read_published(unsigned address) {
    const unsigned char *bytes = shared_at(address, 16);
    const unsigned writer = now.here->writers[(address - SHARED_BASE) / 16];
    if (writer)
        fail("wgmma reads shared address %u, which thread %u wrote and did not publish", address,
             writer - 1);
    if (now.here->landed[(address - SHARED_BASE) / 16] > now.me->published_at)
        fail("wgmma reads shared address %u, which was copied and is not published", address);
    return bytes;
}

/* ---- Copies --------------------------------------------------------------------------------- */

void copy_later(unsigned to, const uint4 &bytes) {
    memset(shared_at(to, 16), 0xff, 16);
    mark_written(to);
    now.me->copies.add({to, bytes});
}

void commit_copies() {
    now.me->copies.commit();
}

void wait_copies(unsigned nleft) {
    now.me->copies.wait(nleft, [](const copy &c) {
        memcpy(shared_at(c.to, 16), &c.bytes, 16);
        mark_written(c.to);
    });
}

/* For a barrier, so that whoever waits for that knows of it. */
static void land(block &owner, const copy &c) {
    const unsigned chunk = (c.to - SHARED_BASE) / 16;
    memcpy(bytes_of(owner, c.to, 16), &c.bytes, 16);
    owner.writers[chunk] = 0;
    owner.landed[chunk] = ++owner.nlanded;
}

/* ---- Barriers ------------------------------------------------------------------------------- */

enum { BARRIER_MAGIC = 0xba55 };

struct barrier {
    uint16_t magic, nphases; /* that are over */
    uint16_t count, pending;
};

static barrier read_barrier(const block &b, unsigned address) {
    barrier found;
    memcpy(&found, bytes_of(b, address, sizeof found), sizeof found);
    if (found.magic != BARRIER_MAGIC) fail("there is no barrier at shared address %u", address);
    return found;
}

void init_barrier(unsigned address, unsigned count) {
    if (count == 0 || count > 0xffff) fail("a barrier for %u", count);
    barrier made = {BARRIER_MAGIC, 0, (uint16_t)count, (uint16_t)count};
    memcpy(shared_at(address, sizeof made), &made, sizeof made);
    for (thread &t : now.here->threads) /* what they forget of other barriers only hides mistakes */
        t.expected.clear();
}

static void write_barrier(const block &owner, unsigned address, barrier b) {
    if (b.pending == 0) {
        b.pending = b.count;
        b.nphases++;
    }
    memcpy(bytes_of(owner, address, sizeof b), &b, sizeof b);
}

static void arrive_at(const block &owner, unsigned address) {
    barrier b = read_barrier(owner, address);
    b.pending--;
    write_barrier(owner, address, b);
}

void arrive(unsigned address) {
    arrive_at(*now.here, address);
}

static void land(block &owner, const arrival &due, unsigned barrier) {
    owner.threads[due.thread].copies.do_first(due.ncopies, [&](const copy &c) { land(owner, c); });
    arrive_at(owner, barrier);
}

void arrive_after_copies(unsigned address) {
    thread &me = *now.me;
    const arrival due = {now.here->number_of(me), me.copies.nasked()};
    read_barrier(*now.here, address);
    if (is_eager())
        land(*now.here, due, address);
    else
        now.here->arrivals[address].push_back(due);
}

/* Copies land when somebody waits for them, not before. */
void land_for(block &owner, unsigned barrier) {
    const auto due = owner.arrivals.find(barrier);
    if (due == owner.arrivals.end()) return;
    for (const arrival &a : due->second)
        land(owner, a, barrier);
    owner.arrivals.erase(due);
}

/* The phase before the first counts as over. */
bool barrier_is_over(const block &b, unsigned address, unsigned parity) {
    return (read_barrier(b, address).nphases & 1) != parity;
}

/* Parity tells a phase only from the one before. As no thread waits twice for a phase, the first of
 * this parity behind the last one is meant, or a later one. */
static void expect_phase(unsigned address, unsigned parity) {
    std::vector<expectation> &all = now.me->expected;
    auto is_of = [=](const expectation &e) { return e.barrier == address; };
    auto at = std::find_if(all.begin(), all.end(), is_of);
    if (at == all.end())
        at = all.insert(at, {address, parity ^ 1});
    else
        at->nphases += 1 + ((at->nphases ^ parity) & 1);
    const unsigned nphases = read_barrier(*now.here, address).nphases;
    if ((int16_t)(at->nphases - nphases) > 1)
        fail("a wait at barrier %u, parity %u, for a phase that has not begun: %u are over",
             address, parity, nphases);
}

void wait_phase(unsigned address, unsigned parity) {
    expect_phase(address, parity);
    land_for(*now.here, address);
    if (barrier_is_over(*now.here, address, parity)) return;
    now.me->barrier = address;
    now.me->parity = parity;
    pause_thread(wait::BARRIER);
}

/* ---- wgmma ------------------------------------------------------------------------------------
 * Operands as r4_describe describes them.
 */

/* 16 columns of a row. */
static void read_row(unsigned long long operand, unsigned row, uint16_t columns[16]) {
    const unsigned start = (unsigned)(operand & 0x3fff) << 4;
    if (operand >> 62 != 1 || (operand >> 49 & 7) || (operand >> 32 & 0x3fff) != 64)
        fail("wgmma's operand %llx", operand);
    for (unsigned half = 0; half < 2; half++) {
        unsigned address = start + row / 8 * 1024 + row % 8 * 128 + 16 * half;
        memcpy(columns + 8 * half, read_published(address ^ (address >> 7 & 7) << 4), 16);
    }
}

/* This thread's sums: rows lane / 4 and eight behind of its warp's 16. */
static void multiply(const product &p) {
    const unsigned number = now.here->number_of(*now.me) % 128;
    uint16_t rows[2][16], column[16];
    for (unsigned i = 0; i < 2; i++)
        read_row(p.a, number / 32 * 16 + number % 32 / 4 + 8 * i, rows[i]);
    for (unsigned j = 0; j < p.n / 8; j++)
        for (unsigned k = 0; k < 2; k++) {
            read_row(p.b, 8 * j + number % 4 * 2 + k, column);
            for (unsigned i = 0; i < 2; i++) {
                float *sum = &p.c[4 * j + 2 * i + k];
                *sum = r4_mma_plain(*sum, rows[i], column);
            }
        }
}

void multiply_later(float *c, unsigned n, unsigned long long a, unsigned long long b) {
    const product p = {c, n, a, b};
    if (is_eager())
        multiply(p);
    else
        now.me->products.add(p);
}

void commit_products() {
    now.me->products.commit();
}

/* A warp's lanes go on together. */
void wait_products(unsigned nleft) {
    now.me->products.wait(nleft, multiply);
    meet(SYNC, ~0u);
}

} // namespace emulator
