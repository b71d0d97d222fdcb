/* state.h - what the files of the emulator share: threads, blocks, the cluster that runs. */
#ifndef BINADE_CUDA_EMULATOR_STATE_H
#define BINADE_CUDA_EMULATOR_STATE_H

#include "emulator.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace emulator {

/* Work that is asked for in groups; a wait leaves the last few of these to be done. */
template <class Work> class queue {
  public:
    void add(const Work &work) {
        asked_.push_back({ncommitted_, work});
        nasked_++;
    }
    size_t nasked() const { return nasked_; }
    bool is_done() const { return asked_.empty(); }
    void commit() { ncommitted_++; }
    template <class Do> void wait(unsigned nleft, Do what) {
        do_while([&](const asked &a, size_t) { return a.group + nleft < ncommitted_; }, what);
    }
    /* The first n that were ever asked for. */
    template <class Do> void do_first(size_t n, Do what) {
        do_while([&](const asked &, size_t number) { return number < n; }, what);
    }

  private:
    struct asked {
        unsigned group;
        Work work;
    };
    std::vector<asked> asked_; /* and not done */
    unsigned ncommitted_ = 0;
    size_t nasked_ = 0;

    template <class Which, class Do> void do_while(Which which, Do what) {
        const size_t ndone = nasked_ - asked_.size();
        size_t n = 0;
        for (; n < asked_.size() && which(asked_[n], ndone + n); n++)
            what(asked_[n].work);
        asked_.erase(asked_.begin(), asked_.begin() + (ptrdiff_t)n);
    }
};

struct copy {
    unsigned to;
    uint4 bytes;
};

/* Of a thread, once so many of its copies have landed. */
struct arrival {
    unsigned thread;
    size_t ncopies;
};

/* That so many phases of a barrier are over. */
struct expectation {
    unsigned barrier, nphases;
};

struct product {
    float *c;
    unsigned n;
    unsigned long long a, b;
};

enum class wait { NOTHING, WARP, BLOCK, CLUSTER, BARRIER, SOME, ENDED };

/* A meeting that lanes have come to; different ones may be open where lanes go different ways. */
struct gathering {
    meeting kind;
    unsigned mask, came;
};

struct warp {
    unsigned alive = 0;
    std::vector<gathering> open;
};

struct thread {
    emulator::wait wait = wait::NOTHING;
    uint3 index;
    unsigned source; /* in a meeting */
    uint64_t value, result;
    unsigned barrier, parity; /* at a barrier in shared memory; of a meeting: number, count */
    unsigned words[NLANE_WORDS];
    queue<copy> copies;
    queue<product> products;
    std::vector<expectation> expected; /* at each barrier, when it waited last */
    std::vector<unsigned> written;     /* chunks of shared memory, not yet published */
    size_t published_at = 0;           /* when: nlanded of the block */
};

struct freeing {
    void operator()(void *memory) const;
};
typedef std::unique_ptr<unsigned char, freeing> memory;
memory new_memory(size_t alignment, size_t nbytes); /* exactly so many, 0xff */

struct block {
    uint3 index;
    unsigned rank; /* in its cluster */
    std::vector<thread> threads;
    std::vector<warp> warps;
    unsigned nalive;
    std::map<unsigned, std::vector<arrival>> arrivals; /* to come, by barrier */
    memory shared;                                     /* dynamic */
    size_t shared_nbytes = 0;
    std::map<const void *, memory> variables; /* the others, by what the compiler calls them */
    std::vector<unsigned> writers;            /* of each 16 bytes of `shared`: thread + 1 */
    std::vector<size_t> landed;               /* there: when, 0 if no copy of a thread did */
    size_t nlanded = 0;

    unsigned number_of(const thread &t) const { return (unsigned)(&t - threads.data()); }
    warp &warp_of(const thread &t) { return warps[number_of(t) / 32]; }
};

/* What runs. */
extern struct launch {
    const kernel *of;
    void **arguments;
    size_t shared_nbytes;
    std::vector<block> blocks; /* of one cluster */
    block *here;
    thread *me;
} now;

void land_for(block &b, unsigned barrier);
bool barrier_is_over(const block &b, unsigned address, unsigned parity);
unsigned char *bytes_of(const block &b, unsigned address, unsigned nbytes);
void pause_thread(wait until);

/* Runs a cluster, the blocks of which are at the first of these indices and behind it. */
void run_cluster(uint3 first, unsigned nthreads);
/* Numbers below n in an order of warps or blocks. */
void put_in_order(std::vector<unsigned> &numbers);

} // namespace emulator

#endif
