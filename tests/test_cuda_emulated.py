"""The programs of tests/cuda run without a GPU: their kernels are emulated on a CPU, under clang's
address and undefined sanitizers, with warps in several orders (tests/cuda/emulator/emulator.h).

Wrong kernels must be noticed: small ones, and those of src/cuda with a line changed.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

CUDA = Path(__file__).parent / "cuda"
spec = importlib.util.spec_from_file_location("compiling", CUDA / "emulator/compiling.py")
compiling = importlib.util.module_from_spec(spec)
spec.loader.exec_module(compiling)

pytestmark = pytest.mark.skipif(
    shutil.which(compiling.CLANG) is None,
    reason=f"{compiling.CLANG} is not installed: no kernel of src/cuda is emulated",
)

ORDERS = ["up", "down", "1"]
PROGRAM_ORDERS = ["down", "1"]  # copies and wgmma at once, and as late as can be
# Each as long a run as a CPU has time for, the longest first.
PROGRAMS = {
    "test_cuda_gemm": "few",
    "test_cuda_gather": "least",
    "test_cuda_fused": "least",
    "test_cuda_load": "least",
    "test_cuda_gemm_mma": "few",
    "test_cuda_matvec": "least",
    "test_cuda_rows": "least",
}

# Kernel of controls.cu, mistake, what is said of it in at least one order.
CONTROLS = [
    ("reverse", "sync", "FAILED block"),
    ("reverse", "some", "no thread can go on"),
    ("reverse", "variable", "out of bounds"),
    ("reverse", "array", "heap-buffer-overflow"),
    ("lanes", "syncwarp", "FAILED warp"),
    ("lanes", "order", "FAILED warp"),
    ("lanes", "lane", "shuffles from lane 5, which is not there"),
    ("lanes", "mask", "which is not there"),
    ("copies", "wait", "FAILED pieces"),
    ("copies", "early", "FAILED pieces"),
    ("copies", "end", "nobody has waited for the last copies of thread 0"),
    ("copies", "align", "is not aligned"),
    ("copies", "outside", "shared address 2048, 16 bytes, of 1024"),
    ("counted", "full", "no thread can go on"),
    ("counted", "arrive", "FAILED pieces"),
    ("counted", "empty", "no thread can go on"),
    ("counted", "turns", "for a phase that has not begun"),
    ("counted", "end", "nobody has waited for the last copies that barrier 1024 counts"),
    ("products", "init", "there is no barrier"),
    ("products", "count", "no thread can go on"),
    ("products", "publish", "did not publish"),
    ("products", "full", "no thread can go on"),
    ("products", "release", "FAILED wgmma"),
    ("products", "sums", "FAILED wgmma"),
    ("copied", "publish", "which was copied and is not published"),
    ("copied", "release", "FAILED wgmma"),
    ("warp", "matrix", "FAILED mma"),
    ("exchange", "sync", "FAILED cluster"),
    ("exchange", "end", "has ended"),
    ("exchange", "rank", "or is none"),
]
# A file of src/cuda, what is changed there, the program that must fail.
CHANGES = [
    ("r4_engine.cuh", "r4_wait_copies<Rows::nstages - 2>();",
     "r4_wait_copies<Rows::nstages - 1>();", "test_cuda_matvec"),
    ("r4_engine.cuh", "    });\n    __syncthreads();", "    });", "test_cuda_matvec"),
    ("r4_engine.cuh", "            __syncwarp();\n", "", "test_cuda_matvec"),
    ("r4_engine.cuh", "if constexpr (I + 2 < R4_GROUP_NSLICES)",
     "if constexpr (I + 3 < R4_GROUP_NSLICES)", "test_cuda_matvec"),
    ("r4_sum.cuh", "apart = 16; apart > 0; apart /= 2", "apart = 1; apart < 32; apart *= 2",
     "test_cuda_matvec"),
    ("r4_normed.cuh", "sum = lane < nwarps ? sums[lane] : 0.0f;\n        __syncthreads();",
     "sum = lane < nwarps ? sums[lane] : 0.0f;", "test_cuda_fused"),
    ("r4_gemm_wgmma.cuh", "            r4_publish();", "", "test_cuda_gemm"),
    ("r4_gemm_wgmma.cuh", "        r4_sync_some(1, 2 * NX);", "", "test_cuda_gemm"),
    ("r4_skinny.cuh", "            r4_wait(block.turn(tile, turn), s.parity);\n", "",
     "test_cuda_gemm"),
    ("r4_skinny.cuh", "__any_sync(~0u, half_of(e.held) <= half)",
     "__any_sync(~0u, half_of(e.held) < half)", "test_cuda_gemm"),
    ("r4_skinny_copy.cuh", "            r4_wait(block.slot_full(slot) + 8, parity ^ 1);\n", "",
     "test_cuda_gemm"),
    ("r4_gemm_copy.cuh", "                slot.wait_empty();\n", "", "test_cuda_gemm_mma"),
    ("r4_gemm_decode.cuh", "            slot.wait_empty();\n", "", "test_cuda_gemm_mma"),
]  # fmt: skip


def kernels_of(program):
    return compiling.KERNELS + compiling.GEMM_KERNELS * ("gemm" in program)


def run(order, program, *arguments):
    """Whether it succeeds, and what it says."""
    done = subprocess.run(
        [program, *arguments],
        env={**os.environ, "EMULATED_ORDER": order},
        capture_output=True,
        check=False,
    )
    return done.returncode == 0, f"order {order}\n{(done.stdout + done.stderr).decode()}\n"


def run_until_failure(program, *arguments):
    """The same in all orders, or up to the first that fails."""
    words = ""
    for order in ORDERS:
        succeeds, said = run(order, program, *arguments)
        words += said
        if not succeeds:
            return False, words
    return True, words


def run_changed(file, old, new, program):
    folder = compiling.change(file, old, new)
    source = CUDA / f"{program}.cu"
    changed = compiling.compile_program(
        source, kernels_of(program), sanitized=False, instead=folder
    )
    return run_until_failure(changed, PROGRAMS[program])


@pytest.fixture(scope="module")
def started():
    """What all tests need, done side by side: results to come, by what they are of."""
    sources = [CUDA / f"{program}.cu" for program in [*PROGRAMS, "emulator/controls"]]
    needed = {s for source in sources for s in compiling.sources_of(source, compiling.KERNELS)}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compiling.compile_object, [*compiling.GEMM_KERNELS, *sorted(needed)]))

        results = {}
        for name, length in PROGRAMS.items():
            program = compiling.compile_program(CUDA / f"{name}.cu", kernels_of(name))
            for order in PROGRAM_ORDERS:
                results[name, order] = pool.submit(run, order, program, length)
        controls = compiling.compile_program(CUDA / "emulator/controls.cu")
        for what in {(kernel, which) for kernel, mistake, _ in CONTROLS for which in (mistake, "")}:
            results[what] = pool.submit(run_until_failure, controls, *what)
        for changed in CHANGES:
            results[changed] = pool.submit(run_changed, *changed)
        yield results


if sys.platform == "linux":  # fibers are written for it

    @pytest.mark.parametrize("order", PROGRAM_ORDERS)
    @pytest.mark.parametrize("program", PROGRAMS)
    def test_program_agrees(started, program, order):
        succeeds, words = started[program, order].result()
        assert succeeds, words
        assert " checks, 0 failed" in words, words

    @pytest.mark.parametrize("kernel", sorted({kernel for kernel, _, _ in CONTROLS}))
    def test_small_kernel_is_right(started, kernel):
        succeeds, words = started[kernel, ""].result()
        assert succeeds, words

    @pytest.mark.parametrize(("kernel", "mistake", "said"), CONTROLS)
    def test_mistake_is_noticed(started, kernel, mistake, said):
        succeeds, words = started[kernel, mistake].result()
        assert not succeeds, f"{kernel} with the mistake {mistake} succeeds"
        assert said in words, words

    @pytest.mark.parametrize("changed", CHANGES, ids=lambda c: f"{c[0]}-{c[1].strip()[:24]}")
    def test_changed_kernel_is_noticed(started, changed):
        succeeds, words = started[changed].result()
        assert not succeeds, "the change makes no difference"
        assert "FAILED" in words or "emulated CUDA" in words, words
