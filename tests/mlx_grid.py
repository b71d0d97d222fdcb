"""Compares products on packed weights with MLX's own, bit for bit. Run as a program, since a kernel
set and a number of threads hold for a process.

    mlx_grid.py quick|full KERNELS

Rebuilding is forbidden all the while, and the kernels that ran are counted.
"""

import ctypes
import itertools
import os
import sys
from pathlib import Path

import binade.mlx
import mlx.core as mx
import numpy as np
from binade.mlx import _ops
from mlx_operands import GENERATORS, assert_same_bits, normal_bits, operands, to_mlx

# The shapes that MLX's order was found and proven with.
GRID_M = (1, 2, 3, 5, 7, 8, 16, 17, 33, 64, 100)
GRID_N = (1, 3, 8, 17, 64, 300)
GRID_K = (4, 8, 64, 100, 128, 576, 704, 1536, 3840)
# Where the kernels cut: groups of 4 columns, blocks of 16 rows, panels of 64 rows and 128 columns,
# 48 and 256 rows of x, 8192 columns for one row of x.
EDGES = [
    *itertools.product((1, 2, 47, 48, 49), (1, 15, 16, 31, 65), (1, 2, 3, 5, 127, 129, 130, 259)),
    *itertools.product((1, 2), (5, 33), (8191, 8192, 8195, 16385)),
    *itertools.product((255, 256, 257, 600), (1, 20), (9, 131)),
    *[(1, 1100, 66), (3, 1100, 66), (1, 4097, 12), (17, 1041, 40)],
]
QUICK = [
    *[(1, 300, 576), (2, 17, 100), (5, 64, 704), (8, 3, 1536), (17, 300, 128), (33, 8, 64)],
    *[(1, 1, 3840), (100, 64, 8), (49, 31, 130), (1, 33, 8195), (257, 20, 9), (3, 5, 3)],
]


class Grid:
    """Compares, and keeps count of what must have run."""

    def __init__(self):
        self.ncases = 0
        self.expected = {"matmul": 0, "gather_mm": 0, "rows": 0, "rebuild": 0}

    def compare(self, operation, got, want, what):
        assert_same_bits(got, want, what)
        self.expected[operation] += 1
        self.ncases += 1

    def compare_products(self, generator, m, n, k):
        x_bits, w_bits = operands(generator, m, n, k)
        x, w = to_mlx(x_bits), to_mlx(w_bits)
        packed = _ops.r4_make(w)
        bias = to_mlx(normal_bits(np.random.default_rng(n), (n,), 3))
        name = f"{generator.__name__} M={m} N={n} K={k}"
        self.compare("matmul", _ops.r4_matmul(x, packed), x @ w.T, name)
        self.compare(
            "matmul", _ops.r4_matmul(x, packed, bias), mx.addmm(bias, x, w.T), f"{name} bias"
        )
        x = x[None] if m % 2 else x.reshape(2, m // 2, k)
        self.compare("matmul", _ops.r4_matmul(x, packed), x @ w.T, f"{name} 3-D")

    def compare_rows(self, generator, n, k):
        w = to_mlx(operands(generator, 1, n, k)[1])
        ids = mx.array(np.random.default_rng(n).integers(-n, n, (3, 40)))
        got, want = _ops.r4_rows(_ops.r4_make(w), ids), mx.take(w, ids, axis=0)
        self.compare("rows", got, want, f"rows {generator.__name__} N={n} K={k}")

    def compare_gather(self, generator, nexperts, n, k):
        x_bits, w_bits = operands(generator, 24, nexperts * n, k)
        x, w = to_mlx(x_bits), to_mlx(w_bits.reshape(nexperts, n, k))
        packed = _ops.r4_make(w)
        rng = np.random.default_rng(nexperts)
        products = mx.stack([x @ expert.T for expert in w])  # [E, M, N]
        name = f"gather {generator.__name__} E={nexperts} N={n} K={k}"
        # As SwitchLinear asks: a few experts for each token, and sorted ones, a token each.
        experts = rng.integers(0, nexperts, (24, 3))
        got = _ops.r4_gather_mm(x[:, None, None], packed, rhs_indices=mx.array(experts))
        want = products[mx.array(experts), mx.arange(24)[:, None]][..., None, :]
        self.compare("gather_mm", got, want, name)
        rows, experts = rng.integers(0, 24, 70), np.sort(rng.integers(0, nexperts, 70))
        got = _ops.r4_gather_mm(
            x[mx.array(rows), None], packed, rhs_indices=mx.array(experts), sorted_indices=True
        )
        want = products[mx.array(experts), mx.array(rows)][:, None]
        self.compare("gather_mm", got, want, f"{name} sorted")
        # Batches of three rows, named by index.
        lhs, experts = rng.integers(0, 8, (5, 4)), rng.integers(0, nexperts, (5, 4))
        got = _ops.r4_gather_mm(
            x.reshape(8, 3, k), packed, lhs_indices=mx.array(lhs), rhs_indices=mx.array(experts)
        )
        want = products.reshape(nexperts, 8, 3, n)[mx.array(experts), mx.array(lhs)]
        self.compare("gather_mm", got, want, f"{name} lhs")


def run(shapes, shapes_of_experts):
    grid = Grid()
    for generator in GENERATORS:
        for m, n, k in shapes:
            grid.compare_products(generator, m, n, k)
        for n, k in {(n, k) for m, n, k in shapes if m == 1}:
            grid.compare_rows(generator, n, k)
        for nexperts, n, k in shapes_of_experts:
            grid.compare_gather(generator, nexperts, n, k)
    return grid


def main():
    kind, kernels = sys.argv[1:]
    library = ctypes.CDLL(str(next(Path(binade.__file__).parent.glob("libbinade.*"))))
    library.binade_cpu.restype = ctypes.c_char_p
    chosen = library.binade_cpu().decode()
    assert os.environ["BINADE_CPU"] == kernels == chosen
    _ops.forbid_rebuild(True)
    if kind == "quick":
        grid = run(QUICK, [(5, 33, 70)])
    else:
        shapes = [*itertools.product(GRID_M, GRID_N, GRID_K), *EDGES]
        experts = itertools.product((1, 2, 8, 33), (1, 16, 50), (4, 66, 128, 130, 300))
        grid = run(shapes, [*experts, (128, 64, 128)])
    counts = _ops.counts()
    assert counts == grid.expected, f"{counts}, not {grid.expected}"
    print(f"{grid.ncases} cases")


if __name__ == "__main__":
    main()
