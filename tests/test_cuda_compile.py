"""The device code compiles for every GPU that is meant to run it, by NVIDIA's run-time compiler.

The compiler comes from PyPI and needs no GPU. Nothing is run: tests/cuda does that, on a GPU.
"""

import ctypes
import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
GPUS = ["sm_80", "sm_89", "sm_90a", "sm_100", "sm_120"]
# The entry points that src/cuda/r4_launch.cu starts.
ENTRIES = [b"binade_r4_matvec", b"binade_r4_rebuild"]


def load_compiler():
    """libnvrtc of the package nvidia-cuda-nvrtc; a test without it fails."""
    places = importlib.util.find_spec("nvidia").submodule_search_locations
    (path,) = (p for place in places for p in Path(place).glob("cu*/lib/libnvrtc.so.*[0-9]"))
    return ctypes.CDLL(str(path))


def compile_device_code(gpu, source):
    """The status, the compiler's words and the machine code."""
    nvrtc = load_compiler()
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, b"r4_kernels.cu", 0, None, None)
    options = [f"--gpu-architecture={gpu}", f"-I{ROOT}/src", "--std=c++17"]
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


if sys.platform == "linux":  # NVIDIA has no compiler for macOS

    @pytest.mark.parametrize("gpu", GPUS)
    def test_device_code_compiles(gpu):
        source = (ROOT / "src/cuda/r4_kernels.cu").read_bytes()
        status, log, code = compile_device_code(gpu, source)
        assert status == 0, log
        assert "warning" not in log, log
        for entry in ENTRIES:
            assert entry in code

    def test_an_error_is_an_error():
        status, log, _ = compile_device_code("sm_90a", b"__global__ void k() { nowhere(); }")
        assert status != 0
        assert "nowhere" in log
