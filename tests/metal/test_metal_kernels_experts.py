"""Our products of items with their experts on Metal have the bits of MLX's gather_mv, and of
gather_mm_rhs where the experts are sorted."""

import functools

import mlx_operands as operands
import numpy as np
import pytest
from agreement import MATRIX_ORDERS, Variant, assert_same, variants
from r4_comparing import M1, M4, mlx, ours
from r4_products import pack

NEXPERTS = 5
# Items, rows of an expert, K.
GATHERED = [(3, 33, 512), (20, 70, 300), (9, 130, 1100), (8, 6, 40), (4, 16, 4096)]
SORTED = [(16, 33, 128), (20, 70, 300), (64, 66, 112), (100, 40, 50), (150, 130, 528), (3, 9, 16)]
MANY = [(items, n, k) for items in (1, 7, 16, 33, 200) for n in (5, 64, 97)
        for k in (8, 100, 128, 640)]  # fmt: skip


@functools.cache
def case(generator, nitems, n, k):
    """x, W, which row of x and which expert each item takes."""
    x, w = operands.operands(generator, nitems, NEXPERTS * n, k)
    rng = np.random.default_rng([nitems, n, k])
    lhs, rhs = (rng.integers(0, high, nitems, np.uint32) for high in (nitems, NEXPERTS))
    return x, w.reshape(NEXPERTS, n, k), lhs, rhs


def halves(weight):
    """gate and up, views of one weight."""
    half = weight.nrows // 2
    return [weight.view(0, half), weight.view(half, weight.nrows - half)]


def check_gathered(shape, generator, variant, checked=False):
    x, w, lhs, rhs = case(generator, *shape)
    weight, run = pack(w), ours(variant, M1, checked)
    want = mlx(variant).gather_mv(x, w, lhs, rhs)
    assert_same(run.gather(x, [weight], rhs, lhs)[0], want, f"{shape}, {variant}")
    assert_same(np.hstack(run.gather(x, halves(weight), rhs, lhs)), want, f"{shape}, two parts")
    return want.size


def check_sorted(shape, generator, variant, checked=False):
    x, w, _, rhs = case(generator, *shape)
    weight, run, experts = pack(w), ours(variant, M4, checked), np.sort(rhs)
    want = mlx(variant).gather_rhs(x, w, experts)
    got = run.gather(x, [weight], experts, is_sorted=True)[0]
    assert_same(got, want, f"{shape}, {variant}")
    got = np.hstack(run.gather(x, halves(weight), experts, is_sorted=True))
    assert_same(got, want, f"{shape}, two parts, {variant}")
    return want.size


def test_gathered():
    for shape in GATHERED:
        for generator in (operands.pairs, operands.tiny, operands.specials):
            for variant in variants(orders=range(4)):
                check_gathered(shape, generator, variant)


def test_sorted():
    for shape in SORTED:
        for variant in variants(mma=MATRIX_ORDERS, orders=range(4)):
            check_sorted(shape, operands.pairs, variant)
        check_sorted(shape, operands.specials, Variant())


@pytest.mark.slow
def test_everywhere():
    for shape in MANY:
        for generator in operands.GENERATORS:
            for variant in variants(orders=range(4)):
                check_gathered(shape, generator, variant)
            for variant in variants(mma=MATRIX_ORDERS, orders=range(4))[::5]:
                check_sorted(shape, generator, variant)


def test_nothing_is_read_or_written_that_should_not_be():
    for order in (0, 3):
        for shape in GATHERED:
            check_gathered(shape, operands.pairs, Variant(order=order), checked=True)
        for shape in SORTED[:4]:
            check_sorted(shape, operands.pairs, Variant(order=order), checked=True)


def test_tiles_do_not_matter():
    """Few and many rows an expert: row blocks of 16, 32 and 64."""
    for nexperts in (1, 2, 3, 20):
        x, w = operands.operands(operands.pairs, 100, nexperts * 40, 144)
        w = w.reshape(nexperts, 40, 144)
        experts = np.sort(np.random.default_rng(nexperts).integers(0, nexperts, 100, np.uint32))
        want = mlx(Variant()).gather_rhs(x, w, experts)
        got = ours(Variant()).gather(x, [pack(w)], experts, is_sorted=True)[0]
        assert_same(got, want, f"{nexperts} experts")


def test_items_follow_each_other():
    """No indices of x: two items a row."""
    x, w, _, rhs = case(operands.pairs, 20, 70, 300)
    lhs = np.arange(20, dtype=np.uint32) // 2
    want = mlx(Variant()).gather_mv(x, w, lhs, rhs)
    assert_same(ours(Variant()).gather(x, [pack(w)], rhs, items_per_x=2)[0], want, "items")


@pytest.mark.parametrize("checked", [False, True])
def test_an_index_out_of_range_gives_nan(checked):
    x, w, lhs, rhs = case(operands.normal, 20, 70, 300)
    weight, run = pack(w), ours(Variant(), M4, checked)
    want = mlx(Variant()).gather_mv(x, w, lhs, rhs)
    bad_rhs, bad_lhs = rhs.copy(), lhs.copy()
    bad_rhs[3], bad_lhs[7] = NEXPERTS, 20
    got = run.gather(x, [weight], bad_rhs, bad_lhs)[0]
    assert (got[[3, 7]] == 0x7FC0).all()
    good = [i for i in range(20) if i not in (3, 7)]
    assert_same(got[good], want[good], "the other items")
    experts = np.sort(bad_rhs)
    got = run.gather(x, [weight], experts, is_sorted=True)[0]
    assert (got[19] == 0x7FC0).all()
    assert not (got[:19] == 0x7FC0).any()
