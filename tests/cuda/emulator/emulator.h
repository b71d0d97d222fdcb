/* emulator.h - CUDA's threads on a CPU: what the emulated cuda/r4_ptx.cuh and r4_gemm_ptx.cuh use.
 *
 * Each thread of a block is a fiber. It runs until it has to wait: for lanes of its warp, for the
 * threads of its block or cluster, for a barrier in shared memory. Blocks run one after another,
 * those of a cluster at once.
 *
 * Where the hardware is free the emulator does what hurts:
 * - EMULATED_ORDER in the environment tells in which order warps run: "up", "down", or a number
 *   from which a random order is drawn.
 * - Shared memory begins as 0xff bytes, NaN. So does what a copy will write, until the wait that
 *   guarantees it. Copies that a barrier counts land when somebody waits there; in the order
 *   "down", at once.
 * - wgmma reads and writes at the wait that guarantees it; in the order "down", at once. What it
 *   reads must have been published, by the thread that wrote it, or, if a barrier counted the
 *   copy, by the thread that reads.
 * - Shared memory has a block's own bytes, and shared addresses are checked. Global memory has the
 *   bytes that were asked for: AddressSanitizer sees what is outside.
 *
 * What can only be a mistake ends the program with a sentence: no thread can go on, a shuffle reads
 * a lane that is not there, an address that is outside or not aligned, a barrier that is none, a
 * wait for a phase that has not begun, which parity cannot tell from one that is over (a thread
 * waits for a phase of a barrier once), a block that ends before its copies: they may write later,
 * over whatever is there by then.
 *
 * Not emulated: time; caches and the order in which other threads see writes, as threads change
 * places only where they wait; races between such places; streams, which are ignored; everything
 * that cuda_runtime.h does not declare.
 */
#ifndef BINADE_CUDA_EMULATOR_H
#define BINADE_CUDA_EMULATOR_H

#include <cuda_runtime.h>

namespace emulator {

enum { SHARED_BASE = 1024 }; /* address where a block's dynamic shared memory begins */

[[noreturn]] void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Bytes of the block's shared memory, at most 16, aligned; who writes marks them for publish(). */
unsigned char *shared_at(unsigned address, unsigned nbytes);
unsigned char *shared_of_block(unsigned address, unsigned nbytes, unsigned rank);
void mark_written(unsigned address);
void publish();
/* What wgmma reads: 16 bytes. */
const unsigned char *read_published(unsigned address);

template <class T> T get_shared(unsigned address) {
    T value;
    memcpy(&value, shared_at(address, sizeof value), sizeof value);
    return value;
}
template <class T> void put_shared(unsigned address, T value) {
    memcpy(shared_at(address, sizeof value), &value, sizeof value);
    mark_written(address);
}

/* cp.async of 16 bytes, which are read here, where sanitizers watch. */
void copy_later(unsigned to, const uint4 &bytes);
void commit_copies();
void wait_copies(unsigned nleft);
/* cp.async.mbarrier.arrive.noinc */
void arrive_after_copies(unsigned barrier);

/* mbarrier */
void init_barrier(unsigned address, unsigned count);
void arrive(unsigned address);
void wait_phase(unsigned address, unsigned parity);
/* bar.sync */
void sync_some(unsigned number, unsigned count);

unsigned cluster_rank();
void sync_cluster();

/* wgmma m64nNk16: c += a b^T, operands by descriptor. */
void multiply_later(float *c, unsigned n, unsigned long long a, unsigned long long b);
void commit_products();
void wait_products(unsigned nleft);

/* Words of this lane that others of its warp read between two meetings. */
enum { NLANE_WORDS = 6 };
unsigned *lane_words(unsigned lane);

bool is_eager();

} // namespace emulator

#endif
