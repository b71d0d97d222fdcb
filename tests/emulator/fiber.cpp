// Fibers: their stacks, and the switch for x86-64 and AArch64.

#include "fiber.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#if __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#endif

extern "C" void emulator_switch(void **save, void *resume);

#if defined(__x86_64__)
// Callee-saved registers go to the stack that is left and come from the one that is entered. The
// control words of floating point are the same in all fibers.
asm(R"(
    .text
    .globl emulator_switch
    .type emulator_switch, @function
emulator_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    popq %rcx
    jmp *%rcx
    .size emulator_switch, .-emulator_switch
)");

static void *prepare(char *top, void (*entry)()) {
    auto words = reinterpret_cast<uint64_t *>(top);
    words[-2] = reinterpret_cast<uint64_t>(entry);
    memset(words - 8, 0, 6 * sizeof *words);
    return words - 8;
}
#elif defined(__aarch64__)
asm(R"(
    .text
    .globl emulator_switch
    .type emulator_switch, %function
emulator_switch:
    sub sp, sp, #160
    stp x19, x20, [sp]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x2, sp
    str x2, [x0]
    mov sp, x1
    ldp x19, x20, [sp]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
    .size emulator_switch, .-emulator_switch
)");

static void *prepare(char *top, void (*entry)()) {
    auto words = reinterpret_cast<uint64_t *>(top - 160);
    memset(words, 0, 160);
    words[11] = reinterpret_cast<uint64_t>(entry);
    return words;
}
#else
#error "fibers are written for x86-64 and AArch64"
#endif

namespace emulator {

static constexpr size_t STACK = 256 << 10;
// Tops lie at different places of the cache.
static constexpr size_t STAGGER = 320;

static char *top_of(char *stack, unsigned i) {
    return stack + STACK - i % 64 * STAGGER;
}

void Fibers::grow(unsigned count) {
    while (stacks_.size() < count) {
        void *stack = mmap(nullptr, STACK, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (stack == MAP_FAILED) abort();
        // What overflows a stack ends the program.
        mprotect(stack, 4096, PROT_NONE);
        stacks_.push_back(static_cast<char *>(stack));
    }
    saved_.resize(stacks_.size());
}

Fibers::~Fibers() {
    for (char *stack : stacks_)
        munmap(stack, STACK);
}

void Fibers::start(unsigned count, void (*entry)()) {
    grow(count);
    for (unsigned i = 0; i < count; i++)
        saved_[i] = prepare(top_of(stacks_[i], i), entry);
}

void Fibers::enter(unsigned i) {
    running_ = i;
    emulator_switch(&outside_, saved_[i]);
}

void Fibers::leave() {
    emulator_switch(&saved_[running_], outside_);
}

void Fibers::forget() {
#if __has_feature(address_sanitizer)
    for (char *stack : stacks_)
        __asan_unpoison_memory_region(stack, STACK);
#endif
}

const char *Fibers::low(unsigned i) const {
    return stacks_[i];
}
const char *Fibers::high(unsigned i) const {
    return stacks_[i] + STACK;
}

} // namespace emulator
