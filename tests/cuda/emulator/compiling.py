"""Compiles programs of CUDA C++ for the emulator, with a host's clang++.

    python tests/cuda/emulator/compiling.py tests/cuda/test_cuda_matvec.cu   # prints the program
    python tests/cuda/emulator/compiling.py --gemm tests/cuda/test_cuda_gemm.cu

Objects are kept below build/cuda-emulated, each by what it was made from. A program runs as on a
GPU, in the order that EMULATED_ORDER names (emulator.h). METAL_CLANG in the environment names
another clang++, as for tests/metal.
"""

import argparse
import functools
import hashlib
import os
import platform
import subprocess
import threading
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
BUILD = ROOT / "build" / "cuda-emulated"
CLANG = os.environ.get("METAL_CLANG", "clang++")

SANITIZERS = [
    "-g1",  # lines, for what they say
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-fno-sanitize=pointer-overflow",  # null pointers that step on and are not used
]
FLAGS = [
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-strict-aliasing",
    "-Wall",
    "-Wextra",
    "-Werror",
]
if platform.machine() == "x86_64":
    FLAGS += ["-mavx2", "-mfma"]
# What is unusual but right in CUDA.
QUIET = [
    "unused-function",
    "unknown-pragmas",
    "pass-failed",
    "missing-field-initializers",
    "sign-compare",
]
CXX = ["-std=c++17", *(f"-Wno-{w}" for w in QUIET), "-femulated-tls"]
INCLUDE = [f"-I{ROOT / folder}" for folder in (
    "tests/cuda/emulator", "src", "tests/cuda", "tests/emulator", "tests")]  # fmt: skip

EMULATOR = [*sorted(HERE.glob("*.cpp")), ROOT / "tests/emulator/fiber.cpp"]
PLAIN = [
    *(ROOT / "src/cuda" / f"{name}.c" for name in (
        "r4_grid", "r4_gemm_grid", "r4_skinny_grid", "gemm_table", "r4_gpu_plain", "r4_mma_plain")),
    *(ROOT / "src/format" / f"{name}.c" for name in ("fixed", "rice", "rank_table")),
]  # fmt: skip
KERNELS = [ROOT / "src/cuda" / name for name in ("r4_launch.cu", "r4_launch_normed.cu")]
GEMM_KERNELS = [ROOT / "src/cuda/r4_launch_gemm.cu"]


def run(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, check=False)
    if done.returncode:
        words = (done.stdout + done.stderr).decode(errors="replace")
        raise RuntimeError(f"{' '.join(str(c) for c in command)}\n{words}")
    return done.stdout


def make(path, make_at):
    """Another may make the same at the same time."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
        make_at(scratch)
        scratch.rename(path)
    return path


def change(file, old, new):
    """A folder that has a changed copy of a file of src/cuda, for a program's `instead`."""
    text = (ROOT / "src/cuda" / file).read_text()
    if text.count(old) != 1:
        raise RuntimeError(f"{file} has {text.count(old)} times {old}")
    text = text.replace(old, new)
    folder = BUILD / f"changed-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    make(folder / "cuda" / file, lambda at: at.write_text(text))
    return folder


def flags_of(source, sanitized, definitions, instead):
    # Without optimization the many kernels of GEMM_KERNELS compile in a tenth of the time and run
    # hardly longer; what is changed runs once.
    flags = [
        "-O0" if instead or source in GEMM_KERNELS else "-O2",
        *FLAGS,
        *(f"-D{d}" for d in definitions),
    ]
    if source.suffix == ".c":  # definitions, which are watched elsewhere
        return [*flags, "-std=c11", "-D_GNU_SOURCE", "-x", "c"]
    if sanitized and source not in EMULATOR:
        flags += SANITIZERS
    return [*flags, *CXX, "-x", "c++"]


@functools.cache
def compile_object(source, sanitized=True, definitions=(), instead=None):
    flags = flags_of(source, sanitized, definitions, instead)
    include = [f"-I{instead}"] * bool(instead) + INCLUDE
    text = run(CLANG, *flags, *include, "-E", source)
    digest = hashlib.sha256(text + f"{CLANG} {flags}".encode()).hexdigest()[:16]
    return make(
        BUILD / f"{source.stem}-{digest}.o",
        lambda at: run(CLANG, *flags, *include, "-c", source, "-o", at),
    )


def sources_of(source, kernels):
    return [source, *kernels, *EMULATOR, *PLAIN]


def compile_program(source, kernels=KERNELS, sanitized=True, definitions=(), instead=None):
    """The program of a source with a main, kernels of other files, and the emulator."""
    objects = [
        compile_object(s, sanitized, definitions, instead if s.suffix == ".cu" else None)
        for s in sources_of(source, kernels)
    ]
    digest = hashlib.sha256("".join(o.name for o in objects).encode()).hexdigest()[:16]
    linking = SANITIZERS if sanitized else []
    return make(
        BUILD / f"{source.stem}-{digest}",
        lambda at: run(CLANG, *linking, *objects, "-pthread", "-lm", "-o", at),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path, help="a .cu file with a main")
    parser.add_argument("kernels", type=Path, nargs="*", help="further .cu files [r4_launch*.cu]")
    parser.add_argument("--gemm", action="store_true", help="and r4_launch_gemm.cu")
    parser.add_argument("--alone", action="store_true", help="no further .cu files")
    parser.add_argument("--plain", action="store_true", help="without sanitizers: faster")
    parser.add_argument("-D", action="append", default=[], help="a definition")
    asked = parser.parse_args()
    kernels = [] if asked.alone else asked.kernels or KERNELS + GEMM_KERNELS * asked.gemm
    print(compile_program(asked.source.resolve(), kernels, not asked.plain, tuple(asked.D)))


if __name__ == "__main__":
    main()
