"""Kernels of src/cuda compile by themselves for the GPUs that are meant to run them, by NVIDIA's
run-time compiler: all but those for several rows of x, of which there are many, which take seconds
each. Of them every kind is compiled, but not for every GPU.

The compiler comes from PyPI and needs no GPU. Nothing is run: tests/cuda does that, on a GPU.
"""

import ctypes
import functools
import importlib.util
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
GPUS = ["sm_80", "sm_89", "sm_90a", "sm_100", "sm_120"]
EMPTY_NBYTES = 4000  # empty ones have up to 3,752, the least of the others 4,512
# Kernel, its file, definitions.
KERNELS = [
    ("matvec_1", "matvec", "R4_NPARTS=1"),
    ("matvec_2", "matvec", "R4_NPARTS=2"),
    ("matvec_3", "matvec", "R4_NPARTS=3"),
    ("matvec_normed_1", "matvec_normed", "R4_NPARTS=1"),
    ("matvec_normed_2", "matvec_normed", "R4_NPARTS=2"),
    ("matvec_normed_3", "matvec_normed", "R4_NPARTS=3"),
    ("matvec_gated_normed", "gated_normed", "R4_NPARTS=2"),
    ("matvec_any", "matvec_any", ""),
    ("gather_any", "gather_any", ""),
    ("gather_1", "gather", "R4_NPARTS=1"),
    ("gather_2", "gather", "R4_NPARTS=2"),
    ("matvec_added", "matvec_fused", "R4_NPARTS=1"),
    ("matvec_gated", "matvec_fused", "R4_NPARTS=2"),
    ("gather_gated", "gather_gated", "R4_NPARTS=2"),
    ("rows", "rows", ""),
    ("rebuild", "rebuild", ""),
    ("from_rice_1", "from_rice", "R4_PASS=1"),
    ("from_rice_2", "from_rice", "R4_PASS=2"),
    ("from_fixed_1", "from_fixed", "R4_PASS=1"),
    ("from_fixed_2", "from_fixed", "R4_PASS=2"),
    ("measure_fixed", "measure_fixed", "R4_PASS=1"),
    ("count_fixed", "measure_fixed", "R4_PASS=2"),
    ("from_bf16_1", "from_bf16", "R4_PASS=1"),
    ("from_bf16_2", "from_bf16", "R4_PASS=2"),
    ("scan", "scan", ""),
    ("count", "count", ""),
]
# Several rows of x by wgmma: rows of x at a time, columns a lane, splits (0: experts), parts.
GEMM_KERNELS = [
    (64, 4, 1, 1),
    (64, 2, 0, 2),
    (128, 4, 5, 1),
    (128, 2, 0, 1),
]
# Few rows of x: as many at most, columns a lane, splits.
SKINNY_KERNELS = [
    (8, 4, 1),
    (8, 2, 3),
    (16, 2, 1),
    (32, 4, 5),
]
# By mma.sync: a GPU, columns a lane, order of sums (0: experts), parts. Hopper has them for orders
# that its own do not keep.
MMA_KERNELS = [
    ("sm_80", 4, 1, 1),
    ("sm_89", 2, 0, 2),
    ("sm_90a", 4, 2, 1),
    ("sm_100", 2, 2, 1),
    ("sm_120", 4, 3, 1),
]


def list_builds():
    """GPU, kernel, file, definitions, whether nothing is to be in it."""
    for gpu in GPUS:
        for kernel in KERNELS:
            yield gpu, *kernel, False
    names = ("R4_NX", "R4_PER_LANE", "R4_NSPLITS")
    for file, names_of, kernels in (
        ("gemm", (*names, "R4_NPARTS"), GEMM_KERNELS),
        ("skinny", names, SKINNY_KERNELS),
    ):
        for numbers in kernels:
            kernel = name_kernel(file, names_of, numbers)
            yield "sm_90a", *kernel, False
            yield "sm_80", *kernel, True
    for gpu, *numbers in MMA_KERNELS:
        names = ("R4_PER_LANE", "R4_ORDER", "R4_NPARTS")
        yield gpu, *name_kernel("gemm_mma", names, numbers), False


def name_kernel(file, names, numbers):
    """Kernel, file, definitions."""
    kernel = "_".join([file, *map(str, numbers)])
    return kernel, file, " ".join(f"{name}={n}" for name, n in zip(names, numbers, strict=True))


BUILDS = list(list_builds())


@functools.cache
def load_compiler():
    """libnvrtc of the package nvidia-cuda-nvrtc; a test without it fails."""
    places = importlib.util.find_spec("nvidia").submodule_search_locations
    (path,) = (p for place in places for p in Path(place).glob("cu*/lib/libnvrtc.so.*[0-9]"))
    return ctypes.CDLL(str(path))


def compile_device_code(gpu, source, definition=""):
    """The status, the compiler's words and the machine code."""
    nvrtc = load_compiler()
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, b"kernel.cu", 0, None, None)
    options = [f"--gpu-architecture={gpu}", f"-I{ROOT}/src", "--std=c++17"]
    options += [f"-D{one}" for one in definition.split()]
    array = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    status = nvrtc.nvrtcCompileProgram(program, len(options), array)
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    code = b""
    if status == 0:
        nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetCUBIN(program, buffer)
        code = buffer.raw
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return status, log.value.decode(), code


def list_entries(code):
    """Kernels in machine code: each has a section of its own."""
    return sorted(set(re.findall(rb"\.text\.(\w+)", code)))


def test_every_file_is_compiled():
    files = {path.name for path in (ROOT / "src/cuda").glob("r4_*.cu")}
    launching = {name for name in files if name.startswith("r4_launch")}
    assert {f"r4_{file}.cu" for _, _, file, _, _ in BUILDS} == files - launching


if sys.platform == "linux":  # NVIDIA has no compiler for macOS

    @pytest.mark.parametrize(("gpu", "kernel", "file", "definition", "is_empty"), BUILDS)
    def test_kernel_compiles(gpu, kernel, file, definition, is_empty):
        source = (ROOT / f"src/cuda/r4_{file}.cu").read_bytes()
        status, log, code = compile_device_code(gpu, source, definition)
        assert status == 0, log
        assert "warning" not in log, log
        assert list_entries(code) == [f"binade_r4_{kernel}".encode()]
        assert (len(code) < EMPTY_NBYTES) == is_empty

    def test_an_error_is_an_error():
        status, log, _ = compile_device_code("sm_90a", b"__global__ void k() { nowhere(); }")
        assert status != 0
        assert "nowhere" in log


def test_what_kernels_include_is_in_the_library():
    """As cmake/mlx.cmake embeds it: all of src/cuda that nvcc alone takes, and headers by name."""
    embedded = (ROOT / "cmake/mlx.cmake").read_text()
    entries = [f for f in (ROOT / "src/cuda").glob("*.cu*") if not f.name.startswith("r4_launch")]
    names = {n for f in entries for n in re.findall(r'#include "(cuda/[^"]+\.h)"', f.read_text())}
    assert names
    for name in names:
        assert f"src/{name}" in embedded, f"{name} is not embedded"
