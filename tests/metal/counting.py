"""Counts operations: each block of a kernel's intermediate code tells the runtime how many it has.

What is counted is what a compiler leaves after optimisation without vectors: arithmetic of floats
(with conversions), of integers (with comparisons and selections), and calls of the runtime such as
shuffles. Addresses and jumps are not counted. A GPU's compiler will differ in detail; the numbers
are for comparing kernels with each other.
"""

import re

FLOAT = {"fadd", "fsub", "fmul", "fdiv", "frem", "fneg", "fcmp", "fptrunc", "fpext", "fptosi",
         "fptoui", "sitofp", "uitofp"}  # fmt: skip
INTEGER = {"add", "sub", "mul", "udiv", "sdiv", "urem", "srem", "shl", "lshr", "ashr", "and", "or",
           "xor", "icmp", "select", "zext", "sext", "trunc"}  # fmt: skip
FLOAT_CALL = re.compile(r"call .*@(llvm\.fm|llvm\.fabs|llvm\.maxnum|llvm\.minnum|\S*bfloat5round)")
INTEGER_CALL = re.compile(r"call .*@llvm\.([us]min|[us]max|ct|bitreverse|bswap|fsh)")
RUNTIME_CALL = re.compile(r"call .*@_ZN8emulator\d+(shuffle|gather|multiply|\w+_barrier|atomic)")
INSTRUCTION = re.compile(r"(?:%\S+ = )?(?:(?:tail|musttail|notail) )?(\w+)")
TERMINATORS = {"br", "switch", "ret", "unreachable", "resume", "indirectbr"}
CALLBACK = "emulated_count"


def kind_of(line):
    """0 for arithmetic of floats, 1 of integers, 2 for the runtime; None for all else."""
    word = INSTRUCTION.match(line)[1]
    if word == "call":
        calls = (FLOAT_CALL, INTEGER_CALL, RUNTIME_CALL)
        return next((i for i, call in enumerate(calls) if call.search(line)), None)
    return 0 if word in FLOAT else 1 if word in INTEGER else None


def is_counted(header):
    """Rounding to bfloat is one operation where it is called, whatever it takes here."""
    return "bfloat5round" not in header


def instrument(text):
    lines, inside, counts = [], False, [0, 0, 0]
    for line in text.split("\n"):
        stripped = line.strip()
        if line.startswith("define "):
            inside, counts = is_counted(line), [0, 0, 0]
        elif line == "}":
            inside = False
        elif inside and line.startswith("  ") and (match := INSTRUCTION.match(stripped)):
            if match[1] in TERMINATORS and any(counts):
                arguments = ", ".join(f"i32 {n}" for n in counts)
                lines.append(f"  call void @{CALLBACK}({arguments})")
                counts = [0, 0, 0]
            elif (kind := kind_of(stripped)) is not None:
                counts[kind] += 1
        lines.append(line)
    return "\n".join(lines) + f"\ndeclare void @{CALLBACK}(i32, i32, i32)\n"
