// Fibers: one stack for each thread of a threadgroup, switched by a few instructions.

#pragma once

#include <cstddef>
#include <vector>

namespace emulator {

class Fibers {
  public:
    ~Fibers();

    // Each of `count` fibers will run `entry` from its beginning.
    void start(unsigned count, void (*entry)());

    // From outside the fibers: runs fiber i until it calls leave().
    void enter(unsigned i);

    // From inside a fiber: back to where enter() was called.
    void leave();

    // After fibers that were left for good: sanitizers still guard what was on their stacks.
    void forget();

    // The stack of fiber i, as [low, high).
    const char *low(unsigned i) const;
    const char *high(unsigned i) const;

  private:
    void grow(unsigned count);

    std::vector<char *> stacks_;
    std::vector<void *> saved_;
    void *outside_ = nullptr;
    unsigned running_ = 0;
};

} // namespace emulator
