"""Products on packed weights have the bits of MLX's own: every kernel set, one thread and two.

The data bites: sums in any other order, made here, fail the same comparison.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

mx = pytest.importorskip("mlx.core")

import mlx_operands as data  # noqa: E402
from binade.mlx import _ops  # noqa: E402

HERE = Path(__file__).parent
PACKAGE = Path(_ops.__file__).parents[2]  # the folder that holds the package
CHOSEN = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
library.binade_cpu.restype = ctypes.c_char_p
print(library.binade_cpu().decode())
"""


def this_cpu_has(kernels):
    library = next((PACKAGE / "binade").glob("libbinade.*"))
    command = [sys.executable, "-c", CHOSEN, library]
    env = {**os.environ, "BINADE_CPU": kernels}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    return done.stdout.strip() == kernels


KERNELS = [kernels for kernels in ("avx512", "avx2", "neon", "plain") if this_cpu_has(kernels)]


def run_grid(kind, kernels, nthreads):
    path = os.pathsep.join([str(PACKAGE), str(HERE)])
    env = {"BINADE_CPU": kernels, "BINADE_NUM_THREADS": str(nthreads), "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, HERE / "mlx_grid.py", kind, kernels],
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("nthreads", [1, 2])
@pytest.mark.parametrize("kernels", KERNELS)
def test_products(kernels, nthreads):
    run_grid("quick", kernels, nthreads)


@pytest.mark.slow
@pytest.mark.parametrize("nthreads", [1, 2])
@pytest.mark.parametrize("kernels", KERNELS)
def test_products_of_all_shapes(kernels, nthreads):
    run_grid("full", kernels, nthreads)


def is_mlx(x, w, order):
    product = data.to_mlx(x) @ data.to_mlx(w).T
    with np.errstate(all="ignore"):
        sums = data.narrow(order(x, w))
    try:
        data.assert_same_bits(data.to_mlx(sums), product)
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize("generator", [data.pairs, data.powers_in_w, data.powers_in_x])
def test_other_orders_are_caught(generator):
    x, w = data.operands(generator, 5, 64, 704)
    assert is_mlx(x, w, data.ascending)
    for order in data.WRONG_ORDERS:
        assert not is_mlx(x, w, order), f"{order.__name__} passes for MLX's order"


# On ARM products are fused, which shows where they pass the range of float32.
IN_RANGE = [data.pairs, data.normal, data.powers_in_w, data.powers_in_x, data.tiny, data.specials]


@pytest.mark.parametrize("generator", IN_RANGE)
def test_mlx_sums_as_documented(generator):
    """One float32 sum for each output, columns ascending."""
    assert is_mlx(*data.operands(generator, 7, 40, 576), data.ascending)
