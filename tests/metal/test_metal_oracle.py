"""MLX's own kernels on the emulator, beside plain models of their orders of sums.

The models were written from a description of the orders, the kernels come from MLX's wheel. That
both agree, and that nearby orders do not, shows that the emulator runs kernels as they are meant.
"""

import mlx_operands as operands
import numpy as np
import oracle
import orders
import products
import pytest
from agreement import DOT_ORDERS, MATRIX_ORDERS, Variant, assert_same, compare, differing, variants
from costs import costs
from products import Mlx

# Sums of these stay where a fused product and sum has the bits of two roundings.
IN_RANGE = [operands.pairs, operands.normal, operands.powers_in_w, operands.powers_in_x]

MATVECS = [(1, 1, 64), (1, 3, 60), (1, 4, 8), (1, 5, 63), (1, 37, 65), (1, 8, 200), (1, 64, 576),
           (1, 130, 1000), (1, 3, 4096), (1, 1, 5001), (1, 4100, 68)]  # fmt: skip
# Making operands takes longer than multiplying them.
MANY_MATVECS = [(1, n, k) for n in (1, 2, 3, 4, 7, 33, 64, 300, 4096)
                for k in (1, 4, 63, 64, 65, 100, 128, 129, 704, 1536, 3840)
                if n * k <= 1 << 16]  # fmt: skip
WIDE = [(2, 65, 256), (5, 64, 1536), (7, 66, 2052), (11, 130, 520), (15, 64, 100)]
MANY_WIDE = [(m, n, k) for m in range(2, 16) for n in (2, 67) for k in (4, 1028, 2304)]
# From here on a threadgroup takes all rows of x, one after another.
MANY_WIDE += [(7, 65539, 4)]
TILED = [(64, 64, 64), (17, 33, 100), (70, 70, 44), (16, 130, 200)]
MANY_TILED = [(m, n, k) for m in (1, 17, 64, 100) for n in (3, 64, 97)
              for k in (8, 20, 64, 100)]  # fmt: skip
SPLIT = [(16, 33, 512), (40, 40, 600), (33, 70, 1031)]
MANY_SPLIT = [(m, n, k) for m in (16, 40, 65) for n in (16, 39, 70) for k in (256, 1031)]


def mlx(variant, **more):
    return Mlx(fma=variant.fma, **variant.options(), **more)


class Remembered:
    """A model that is asked again and again for the same operands."""

    def __init__(self, model):
        self.model, self.operands, self.results = model, (None, None), {}

    def __call__(self, x, w, variant):
        if self.operands[0] is not x or self.operands[1] is not w:
            self.operands, self.results = (x, w), {}
        key = variant.mma, variant.dot
        if key not in self.results:
            self.results[key] = self.model(x, w, variant)
        return self.results[key]


def kept(**choices):
    """Variants that keep subnormals, as the models do."""
    return [v for v in variants(orders=range(4), **choices) if not v.flush]


def gemv_of_mlx(x, w, variant):
    return mlx(variant).gemv(x, w).reshape(1, -1)


def check_gemv(shapes, full):
    choices = kept(full=full)
    model = Remembered(lambda x, w, v: orders.gemv(x, w))
    assert compare(model, gemv_of_mlx, shapes, IN_RANGE, choices)


def test_gemv():
    check_gemv(MATVECS, full=False)


@pytest.mark.slow
def test_gemv_everywhere():
    check_gemv(MANY_MATVECS, full=True)


def wide_model(x, w, variant):
    return orders.wide(x, w, products.wide_plan(len(x), len(w))[1], variant.dot)


def check_wide(shapes, full):
    choices = kept(dot=DOT_ORDERS, full=full)
    compare(Remembered(wide_model), lambda x, w, v: mlx(v).wide(x, w), shapes, IN_RANGE, choices)


def test_wide():
    check_wide(WIDE, full=False)


@pytest.mark.slow
def test_wide_everywhere():
    check_wide(MANY_WIDE, full=False)


def check_fused(shapes, generators, full):
    choices = kept(mma=MATRIX_ORDERS, full=full)
    for tile in oracle.FUSED_TILES:
        compare(
            Remembered(lambda x, w, v, tile=tile: orders.fused(x, w, tile[2], v.mma)),
            lambda x, w, v, tile=tile: mlx(v).fused(x, w, tile),
            shapes,
            generators,
            choices,
        )


def test_fused():
    check_fused(TILED, [operands.pairs], full=False)


@pytest.mark.slow
def test_fused_everywhere():
    check_fused(MANY_TILED, IN_RANGE, full=False)


def check_split(shapes, generators):
    choices = kept(mma=MATRIX_ORDERS)
    compare(
        Remembered(
            lambda x, w, v: orders.split(x, w, products.split_parts(len(x), *w.shape), v.mma)
        ),
        lambda x, w, v: mlx(v).split(x, w),
        shapes,
        generators,
        choices,
    )


def test_split():
    check_split(SPLIT, [operands.pairs])


@pytest.mark.slow
def test_split_everywhere():
    check_split(MANY_SPLIT, IN_RANGE)


def experts(nitems, nexperts):
    return np.sort(np.random.default_rng(nitems).integers(0, nexperts, nitems))


ITEMS = [(70, 66, 100), (16, 64, 64), (33, 128, 40), (1, 8, 8)]


@pytest.mark.parametrize(("nitems", "n", "k"), ITEMS)
def test_gathers(nitems, n, k):
    x, w = operands.operands(operands.pairs, nitems, 6 * n, k)
    w = w.reshape(6, n, k)
    chosen = experts(nitems, 6)
    each = [(x[i : i + 1], w[e]) for i, e in enumerate(chosen)]
    for variant in kept(mma=MATRIX_ORDERS):
        want = np.concatenate([orders.fused(a, b, 16, variant.mma) for a, b in each])
        assert_same(mlx(variant).gather_rhs(x, w, chosen), want, variant)
    want = np.concatenate([orders.gather(a, b) for a, b in each])
    for order in range(4):
        got = mlx(Variant(order=order)).gather_mv(x, w, np.arange(nitems), chosen)
        assert_same(got, want, f"gather_mv, threads in order {order}")


def bias_cases():
    x, w = operands.operands(operands.normal, 20, 70, 576)
    return x, w, operands.normal_bits(np.random.default_rng(5), 70, 3.0)


def test_biases():
    """gemv rounds the sum first, the others once."""
    x, w, bias = bias_cases()
    one = orders.matvec_tree(x[:1], w, 32, 1)[0]
    want = operands.narrow(operands.widen(one) + operands.widen(bias))
    assert_same(Mlx().gemv(x[:1], w, bias), want, "gemv")
    assert differing(Mlx().gemv(x[:1], w, bias), Mlx().gemv(x[:1], w)) > 60
    sums = orders.matrix_chain(orders.products(x, w), 0)
    want = operands.narrow(sums + operands.widen(bias))
    for tile in oracle.FUSED_TILES:
        assert_same(Mlx().fused(x, w, tile, bias), want, tile)


# ---- Nearby orders differ


def test_a_plain_chain_is_no_gemv():
    x, w = operands.operands(operands.pairs, 1, 130, 1000)
    assert differing(Mlx().gemv(x, w), orders.plain(x, w)[0]) > 100


def test_the_forms_of_gemv_differ():
    """A gather has no other forms for small K and for large, so it differs there."""
    for n, k in ((32, 64), (8, 4096)):
        x, w = operands.operands(operands.pairs, 1, n, k)
        gathered = Mlx().gather_mv(x, w[None], [0], [0])[0]
        assert_same(gathered, orders.gather(x, w)[0], "gather_mv")
        assert differing(Mlx().gemv(x, w), gathered)


def test_a_tail_at_the_end_is_no_fused_gemm():
    x, w = operands.operands(operands.pairs, 17, 33, 100)
    for tile in oracle.FUSED_TILES:
        assert differing(Mlx().fused(x, w, tile), orders.fused(x, w, tile[2], 0, tail_first=False))


@pytest.mark.parametrize("order", MATRIX_ORDERS)
def test_the_order_inside_a_step_shows(order):
    x, w = operands.operands(operands.pairs, 16, 64, 256)
    got = Mlx(mma=order).fused(x, w, (64, 32, 32, 2, 2))
    for other in MATRIX_ORDERS:
        assert (differing(got, orders.fused(x, w, 32, other)) == 0) == (order == other)


@pytest.mark.parametrize("order", DOT_ORDERS)
def test_the_order_inside_a_dot_product_shows(order):
    x, w = operands.operands(operands.pairs, 3, 64, 256)
    got = Mlx(dot=order).wide(x, w)
    for other in DOT_ORDERS:
        assert (differing(got, orders.wide(x, w, 32, other)) == 0) == (order == other)


def test_flushing_and_fusing_show():
    x, w = operands.operands(operands.tiny, 1, 64, 576)
    assert differing(Mlx(flush=1).gemv(x, w), Mlx(flush=0).gemv(x, w))
    # The second product is past all numbers by itself, and not with the first.
    x, w = np.zeros((2, 1, 128), np.uint16)
    x[0, :2] = operands.narrow(np.array([2.0**64, 2.0**64], np.float32))
    w[0, :2] = operands.narrow(np.array([-(2.0**63), 2.0**64], np.float32))
    assert Mlx(fma=True).gemv(x, w) == operands.narrow(np.array([2.0**127], np.float32))
    assert Mlx(fma=False).gemv(x, w) == 0x7F80


# ---- What MLX's kernels are allowed


def test_findings_in_mlx():
    """Exactly those that are known; a new version of MLX may have others."""
    found = {}
    for n, k in ((64, 576), (66, 576), (37, 64), (8, 4096)):
        x, w = operands.operands(operands.normal, 1, n, k)
        run = Mlx(checked=True)
        run.gemv(x, w)
        found[n, k] = set(run.reports[0].findings)
    assert found == {
        (64, 576): set(),
        (66, 576): {"double write"},
        (37, 64): {"inactive lane", "double write"},
        (8, 4096): {"divergent barrier", "race"},
    }
    x, w = operands.operands(operands.normal, 40, 70, 600)
    run = Mlx(checked=True)
    run.fused(x, w, (64, 32, 32, 2, 2))
    run.split(x, w)
    run.wide(x[:7], w)
    assert all(not report.findings for report in run.reports)


def costs_of(multiply, library, nweights):
    counted = Mlx(libraries={library: oracle.library(library, counted=True)})
    checked = Mlx(checked=True)
    for run in (counted, checked):
        multiply(run)
    return costs(counted.reports, checked.reports, nweights)


def test_costs_of_mlx():
    """A matvec reads each weight once and multiplies it once."""
    x, w = operands.operands(operands.normal, 1, 512, 2048)
    found = costs_of(lambda run: run.gemv(x, w), "gemv", w.size)
    assert found.loads[0] == 2
    assert found.loads[1] == 0.5  # x, for four rows at a time
    assert found.stores[3] * 2048 == 2
    assert 1 < found.float_ops < 1.1
    assert found.threadgroup_loads == found.threadgroup_stores == 0
    x, w = operands.operands(operands.normal, 64, 64, 512)
    found = costs_of(lambda run: run.fused(x, w, (64, 64, 16, 2, 2)), "fused", w.size)
    assert found.loads[0] == found.loads[1] == 2
    assert found.threadgroup_stores == 4
