"""The MLX operations in other places: little memory, another MLX or none, a program in C++."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

mx = pytest.importorskip("mlx.core")

import binade  # noqa: E402
from binade.mlx import _ops  # noqa: E402
from mlx_operands import values  # noqa: E402

HERE = Path(__file__).parent
PACKAGE = Path(_ops.__file__).parents[2]  # the folder that holds the package


def run_python(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": f"{PACKAGE}{os.pathsep}{HERE}", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


TOO_LITTLE_MEMORY = """
import resource
import binade
import mlx.core as mx
from binade.mlx import _ops

def try_with(nbytes, function):
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + nbytes, -1))
    try:
        return function()
    except (MemoryError, RuntimeError) as error:
        print(type(error).__name__, error)
    except binade.FileError as error:
        assert "thread" in str(error)  # a new thread wants memory for its stack
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (-1, -1))

def rebuild():
    mx.eval(_ops.r4_rebuild(packed))
    return True

weight = mx.random.normal((8192, 4096)).astype(mx.bfloat16)
x = weight[:1] + 0
mx.eval(weight, x, _ops.r4_matmul(x, _ops.r4_make(weight)))  # threads and scratch exist now
packed = None
for mib in range(1, 100):
    packed = packed or try_with(mib << 20, lambda: _ops.r4_make(weight))
assert packed
rebuilt = None
for mib in range(1, 100):
    rebuilt = rebuilt or try_with(mib << 20, rebuild)
assert rebuilt
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits and measures as Linux does")
def test_too_little_memory():
    """Any amount: an exception, where MLX itself would crash."""
    done = run_python(TOO_LITTLE_MEMORY)
    assert done.returncode == 0, done.stdout
    kinds = {line.split()[0] for line in done.stdout.splitlines()}
    assert kinds == {"MemoryError", "RuntimeError"}, done.stdout


OTHER_VERSION = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import binade.mlx
import mlx.core as mx
from binade.mlx import _ops
from mlx_operands import assert_same_bits, normal_bits, to_mlx
import numpy as np
rng = np.random.default_rng(0)
x, w, experts = (to_mlx(normal_bits(rng, shape)) for shape in ((3, 70), (44, 70), (5, 44, 70)))
assert_same_bits(_ops.r4_matmul(x, _ops.r4_make(w)), x @ w.T)
assert_same_bits(_ops.r4_matmul(x, _ops.r4_make(w), w[:, 0]), mx.addmm(w[:, 0], x, w.T))
got = _ops.r4_gather_mm(x[:, None, None], _ops.r4_make(experts), rhs_indices=mx.array([[4, 0]] * 3))
for i, row in enumerate(x):
    for j, expert in enumerate((4, 0)):
        assert_same_bits(got[i, j, 0], row @ experts[expert].T)
ids = mx.array([1, -1])
assert_same_bits(_ops.r4_rows(_ops.r4_make(w), ids), w[ids])
print(_ops.counts(), [str(warning.message) for warning in caught], _ops.mlx_is_proven())
"""


def run_compiler(*arguments):
    done = subprocess.run(
        [str(argument) for argument in arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.skipif(
    sys.platform != "linux", reason="puts a function in front of MLX's as Linux does"
)
def test_another_version_of_mlx_rebuilds(tmp_path):
    source, library = tmp_path / "version.c", tmp_path / "version.so"
    source.write_text(
        "const char *f(void) __asm__("
        '"_ZN3mlx4core7versionEv");\n'
        'const char *f(void) { return "0.99.0"; }\n'
    )
    run_compiler("cc", "-shared", "-fPIC", source, "-o", library)
    done = run_python(OTHER_VERSION, LD_PRELOAD=str(library))
    assert done.returncode == 0, done.stdout
    counts, warning, proven = re.fullmatch(r"(\{.*\}) \[(.*)\] (\w+)\n", done.stdout).groups()
    assert counts == "{'matmul': 0, 'gather_mm': 0, 'rows': 1, 'rebuild': 3}"
    assert "rebuilds" in warning
    assert proven == "False"


def test_binade_needs_no_mlx():
    done = run_python(
        "import sys; sys.modules['mlx'] = None; import binade; print('fine')\n"
        "try:\n    import binade.mlx\n"
        "except ImportError as error: print(error)"
    )
    fine, sentence = done.stdout.splitlines()
    assert fine == "fine"
    assert "binade[cpu]" in sentence
    assert "binade[cuda]" in sentence


def test_cpp_program(tmp_path):
    """An installed tree serves C++ without Python."""
    run_compiler("cmake", "--install", PACKAGE.parent, "--prefix", tmp_path)
    include, lib = Path(mx.__file__).parent / "include", Path(mx.__file__).parent / "lib"
    library = next(tmp_path.rglob("libbinade_mlx.*"))
    program = tmp_path / "program"
    run_compiler(
        *("c++", "-std=c++20", "-Wall", "-Wextra", HERE / "mlx_program.cpp", "-o", program),
        *(f"-I{tmp_path}/include", "-isystem", include, f"-L{library.parent}", f"-L{lib}"),
        *("-lbinade_mlx", "-lbinade", "-lmlx"),
        *(f"-Wl,-rpath,{library.parent}", f"-Wl,-rpath,{lib}"),
    )
    packed = tmp_path / "packed"
    original = tmp_path / "original"
    original.mkdir()
    weight, x = values(50, 256, 256), values(51, 3, 256)
    tensors = {"model.layers.0.mlp.up_proj.weight": weight, "x": x}
    mx.save_safetensors(str(original / "model.safetensors"), tensors, {"format": "mlx"})
    binade.pack(original, packed)
    run_compiler(program, packed)
