"""MLX's kernels as Apple's compiler left them, beside the same kernels from their sources.

Two routes that share little: what they agree in is neither an accident of the emulated headers nor
something that Apple's compiler would change.
"""

import air
import mlx_operands as operands
import numpy as np
import oracle
import pytest
from agreement import DOT_ORDERS, MATRIX_ORDERS, assert_same, compare, differing, variants
from products import Mlx

SOME = [operands.pairs, operands.tiny, operands.specials]
EDGES = [*SOME, operands.normal, operands.all_patterns, operands.all_finite]
MATVECS = [(1, 1, 64), (1, 37, 63), (1, 8, 200), (1, 130, 1000), (1, 3, 4096), (1, 4100, 68)]
MANY_MATVECS = [(1, n, k) for n in (1, 3, 4, 7, 64, 300) for k in (1, 63, 65, 128, 704, 3840)]
WIDE = [(2, 65, 256), (7, 66, 2052), (15, 64, 100)]
MANY_WIDE = [(m, 67, k) for m in range(2, 16) for k in (4, 128, 2304)]
TILED = [(17, 33, 100), (64, 64, 64)]
MANY_TILED = [(m, n, k) for m in (1, 17, 100) for n in (3, 64, 97) for k in (20, 64)]
SPLIT = [(16, 33, 512), (40, 40, 600), (33, 70, 1031)]


def source(variant):
    return Mlx(fma=variant.fma, **variant.options())


def compiled(variant):
    return Mlx(libraries=air.libraries(variant.fma), **variant.options())


def check(multiply, shapes, generators=SOME, **choices):
    """`multiply` takes Mlx, x, w and the bias."""

    def by(route):
        def run(x, w, variant):
            bias = operands.normal_bits(np.random.default_rng(len(w)), len(w))
            return multiply(route(variant), x, w, bias)

        return run

    assert compare(by(compiled), by(source), shapes, generators, variants(**choices))


def check_all(matvecs, wide, tiled, split, generators):
    def each_tile(name):
        return [lambda m, x, w, b, t=t: m.fused(x, w, t, b if name else None) for t in
                oracle.FUSED_TILES]  # fmt: skip

    threads = {"orders": range(4)}
    check(lambda m, x, w, b: m.gemv(x, w), matvecs, generators, **threads)
    check(lambda m, x, w, b: m.gemv(x, w, b), matvecs, generators, **threads)
    for wide_product in (lambda m, x, w, b: m.wide(x, w), lambda m, x, w, b: m.wide(x, w, b)):
        check(wide_product, wide, generators, dot=DOT_ORDERS, **threads)
    for multiply in each_tile("") + each_tile("bias"):
        check(multiply, tiled, generators[:2], mma=MATRIX_ORDERS, **threads)
    check(lambda m, x, w, b: m.split(x, w), split, generators[:2], mma=MATRIX_ORDERS, **threads)
    check(lambda m, x, w, b: m.split(x, w, b), split, generators[:1], mma=MATRIX_ORDERS, **threads)


def test_both_routes_agree():
    check_all(MATVECS, WIDE, TILED[:1], SPLIT[:2], SOME)


@pytest.mark.slow
def test_both_routes_agree_everywhere():
    check_all(MANY_MATVECS, MANY_WIDE, MANY_TILED, SPLIT, EDGES)


@pytest.mark.parametrize("generator", SOME)
def test_gathers_agree(generator):
    x, w = operands.operands(generator, 70, 6 * 66, 100)
    w = w.reshape(6, 66, 100)
    chosen = np.sort(np.random.default_rng(0).integers(0, 6, 70))
    for variant in variants(mma=MATRIX_ORDERS, orders=range(4)):
        got = compiled(variant).gather_rhs(x, w, chosen)
        assert_same(got, source(variant).gather_rhs(x, w, chosen), variant)
    for variant in variants(orders=range(4)):
        got = compiled(variant).gather_mv(x, w, np.arange(70), chosen)
        assert_same(got, source(variant).gather_mv(x, w, np.arange(70), chosen), variant)


def test_the_compiled_kernels_are_others():
    """The comparison is not of a library with itself, and choices reach the compiled kernels."""
    x, w = operands.operands(operands.pairs, 16, 64, 256)
    runs = {mma: Mlx(libraries=air.libraries(), mma=mma) for mma in MATRIX_ORDERS}
    tile = oracle.FUSED_TILES[0]
    first = runs[0].fused(x, w, tile)
    assert all(differing(runs[mma].fused(x, w, tile), first) for mma in (1, 2, 3, 4, 5))
    assert air.library("fused").path != oracle.library("fused").path
    tiny, weights = operands.operands(operands.tiny, 1, 64, 576)
    kept, flushed = (Mlx(libraries=air.libraries(), flush=f).gemv(tiny, weights) for f in (0, 1))
    assert differing(kept, flushed)
    # A product past all numbers, unless it is added before it is rounded.
    x, w = np.zeros((2, 1, 128), np.uint16)
    x[0, :2] = operands.narrow(np.array([2.0**64, 2.0**64], np.float32))
    w[0, :2] = operands.narrow(np.array([-(2.0**63), 2.0**64], np.float32))
    fused, apart = (Mlx(libraries=air.libraries(fma)).gemv(x, w)[0] for fma in (True, False))
    assert (fused, apart) == (0x7F00, 0x7F80)
