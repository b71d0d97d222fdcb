"""MLX's products of BF16 matrices on Metal, launched as MLX launches them, on the emulator.

x is [M, K], W is [N, K], both uint16 patterns; results are x W^T. The functions say which kernel
runs; which one MLX chooses for a shape is for who calls them.
"""

import numpy as np
import oracle

BF16 = np.uint16

# What MLX's kernels do that no kernel here may: a barrier that part of a threadgroup reaches, one
# that does not name the memory it orders, lanes that read from lanes that have ended, and results
# written by two threads where N is no multiple of the rows of a thread.
GEMV_FINDINGS = ("divergent barrier", "inactive lane", "double write", "race")


class Mlx:
    """Products under one choice of what is open: `fma`, and the options of launches."""

    def __init__(self, fma=True, checked=False, libraries=None, **options):
        self._fma, self._checked, self._options = fma, checked, options
        self._libraries = libraries or {}
        self.reports = []

    def _launch(self, library, name, buffers, groups, threadgroup, grid=None, **more):
        found = self._libraries.get(library) or oracle.library(library, self._fma, self._checked)
        grid = grid or tuple(g * t for g, t in zip(groups, threadgroup, strict=True))
        if isinstance(buffers, dict):
            buffers = {**dict.fromkeys(range(31)), **buffers}
        report = found.launch(name, buffers, grid, threadgroup, **{**self._options, **more})
        self.reports.append(report)

    # ---- One row of x

    def gemv(self, x, w, bias=None):
        n, k = w.shape
        tile = gemv_tile(n, k)
        out = np.zeros(n, BF16)
        strides = longs(0)
        buffers = {0: w, 1: x, 3: out, 4: ints(k), 5: ints(n), 6: ints(k)}
        buffers |= {9: ints(1), 10: ints(1), 11: strides, 12: strides}
        if bias is not None:
            buffers |= {2: bias, 7: floats(1), 8: floats(1), 13: strides, 14: ints(1)}
        name = oracle.named("gemv" if bias is None else "gemv_bias", tile)
        self._gemv(name, tile, buffers, n, 1)
        return out

    def gather_mv(self, x, w, x_index, w_index):
        """Row i of the result is x[x_index[i]] W[w_index[i]]^T, W being [E, N, K]."""
        nexperts, n, k = w.shape
        tile = gather_tile(n)
        out = np.zeros((len(w_index), n), BF16)
        buffers = {0: w, 1: x, 3: out, 4: ints(k), 5: ints(n), 6: ints(k)}
        buffers |= {9: ints(1), 10: ints(len(w_index)), 11: longs(1, 1)}
        buffers |= {12: ints(1), 13: ints(len(x)), 14: longs(k)}
        buffers |= {15: ints(1), 16: ints(nexperts), 17: longs(n * k)}
        buffers |= {18: uints(*x_index), 19: uints(*w_index), 7: floats(1), 8: floats(0)}
        self._gemv(oracle.named("gather", tile), tile, buffers, n, len(w_index))
        return out

    def _gemv(self, name, tile, buffers, n, batch):
        bm, bn, sm, _, tm, _ = tile
        groups = (-(-n // (bm * sm * tm)), 1, batch)
        self._launch("gemv", name, buffers, groups, (32, bn, bm), allow=GEMV_FINDINGS)

    # ---- 2 to 15 rows

    def wide(self, x, w, bias=None):
        (m, k), n = x.shape, len(w)
        nvec, lanes, grid = wide_plan(m, n)
        out = np.zeros((m, n), BF16)
        buffers = {0: w, 1: x, 3: out}
        buffers |= {i: ints(v) for i, v in zip(range(4, 9), (k, n, m, k, k), strict=True)}
        buffers |= {11: ints(1), 12: ints(1), 13: longs(0), 14: longs(0)}
        if bias is not None:
            buffers |= {2: bias, 9: floats(1), 10: floats(1)}
            buffers |= {15: longs(0), 16: ints(0), 17: ints(1)}
        self._launch(
            "gemv",
            f"wide_{nvec}_{lanes}",
            buffers,
            (grid, -(-n // 4), 1),
            (32, lanes // 8, 1),
            constants={1: bias is not None},
        )
        return out

    # ---- GEMM

    def fused(self, x, w, tile, bias=None):
        bm, bn, bk, wm, wn = tile
        (m, k), n = x.shape, len(w)
        tiles = (-(-n // bn), -(-m // bm))
        out = np.zeros((m, n), BF16)
        params = np.concatenate([
            ints(m, n, k, k, k, n, *tiles), longs(0, 0, 0).view(np.int32), ints(0, k // bk, 1, 0)
        ])  # fmt: skip
        addmm = np.concatenate([ints(0, 1), longs(0).view(np.int32), floats(1, 1).view(np.int32)])
        buffers = {0: x, 1: w, 2: bias, 3: out, 4: params, 5: addmm}
        constants = {100: bias is not None, 110: False}
        constants |= {200: m % bm == 0, 201: n % bn == 0, 202: k % bk == 0}
        name = oracle.named("fused", tile)
        self._launch("fused", name, buffers, (*tiles, 1), (32, wn, wm), constants=constants)
        return out

    def split(self, x, w, bias=None):
        (m, k), n = x.shape, len(w)
        bm, bn = (16 if side < 40 else 32 for side in (m, n))
        parts = split_parts(m, n, k)
        steps = k // 16 // parts
        sums = np.zeros((parts, m, n), np.float32)
        out = np.zeros((m, n), BF16)
        tiles = (-(-n // bn), -(-m // bm))
        params = ints(m, n, k, k, k, n, *tiles, parts, m * n, steps * 16, 0, steps)
        aligned = (int(m % bm == 0 and n % bn == 0), int(k % 16 == 0))
        name = oracle.named("splitk", (bm, bn, *aligned))
        self._launch("splitk", name, [x, w, sums, params], (*tiles, parts), (32, 2, 2))
        buffers = [sums, out, ints(parts), ints(m * n), ints(n)]
        name = "accumulate"
        if bias is not None:
            buffers += [bias, ints(0), ints(1), floats(1), floats(1)]
            name = "accumulate_bias"
        self._launch("splitk", name, buffers, (), (32, 8, 1), grid=(n, m, 1))
        return out

    def gather_rhs(self, x, w, experts):
        """Row i of the result is x[i] W[experts[i]]^T; experts ascend."""
        (m, k), n = x.shape, w.shape[1]
        tiles = (-(-n // 64), -(-m // 16))
        out = np.zeros((m, n), BF16)
        params = np.concatenate([
            ints(m, n, k, k, k, n, *tiles), longs(0, n * k, 0).view(np.int32),
            ints(0, k // 16, 0, 0),
        ])  # fmt: skip
        constants = {10: False, 200: m % 16 == 0, 201: n % 64 == 0, 202: k % 16 == 0}
        buffers = [x, w, uints(*experts), out, params]
        self._launch(
            "gather",
            "gather_rhs",
            buffers,
            (*tiles, 1),
            (32, 2, 1),
            constants=constants,
            allow=("race",),
        )
        return out


# ---- MLX's choices


def gemv_tile(n, k):
    """Template arguments for a matvec of N x K."""
    tm = 4 if n >= 4 else 1
    if k <= 64:
        return (1, 1, 8, 4, tm, 4)
    if k >= 16 * n:
        return (1, 8, 1, 32, tm, 4)
    return gather_tile(n)


def gather_tile(n):
    return (8 if n >= 4096 else 4, 1, 1, 32, 4 if n >= 4 else 1, 4)


def wide_plan(m, n):
    """Vectors and lanes of a thread row, columns of the grid."""
    passes = -(-m // 5)
    lanes = 32 if passes == 1 or n <= 64 else 16
    return -(-m // passes), lanes, 1 if n >= 65536 else passes


def split_parts(m, n, k):
    tiles = -(-m // 32) * -(-n // 32)
    parts = 1
    while parts < k // 16 // tiles:
        parts *= 2
    return min(max(2, parts), 32)


# ---- Arguments


def ints(*values):
    return np.array(values, np.int32)


def uints(*values):
    return np.array(values, np.uint32)


def longs(*values):
    return np.array(values, np.int64)


def floats(*values):
    return np.array(values, np.float32)
