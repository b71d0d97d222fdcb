"""Our GEMMs on Metal have the bits of MLX's steel GEMMs, fused and split along K, under every order
inside a matrix step."""

import mlx_operands as operands
import pytest
from agreement import MATRIX_ORDERS, Variant, assert_same, compare, variants
from r4_comparing import M1, M3_MAX, M4, M4_ULTRA, bias_of, multiply, multiply_by_mlx, ours
from r4_products import MLX, pack, product, rule

# Row blocks of 16, 32 and 64; K with a rest of 16, of 32, of both tiles, of slices, and none.
FUSED = [(16, 33, 112), (17, 130, 100), (40, 200, 144), (70, 130, 44), (64, 260, 256)]
SPLIT = [(16, 33, 512), (40, 40, 600), (33, 70, 1031), (70, 96, 160), (16, 16, 144)]
MANY = [(m, n, k) for m in (16, 17, 33, 64, 100) for n in (8, 64, 97, 300)
        for k in (20, 64, 127, 256)]  # fmt: skip
MANY_SPLIT = [(m, n, k) for m in (16, 40, 65, 130) for n in (16, 64, 70)
              for k in (256, 500, 2055)]  # fmt: skip
FEW = [operands.pairs, operands.tiny, operands.specials]


def check(shapes, generators, choices, gpu, bias=False, checked=False):
    return compare(
        lambda x, w, v: multiply(x, w, v, gpu, bias, checked),
        lambda x, w, v: multiply_by_mlx(x, w, v, gpu, bias),
        shapes,
        generators,
        choices,
    )


def check_kind(shapes, kind, gpu):
    for m, n, k in shapes:
        x, _ = operands.operands(operands.normal, m, 1, k)
        assert MLX[rule(gpu, product(x, n)).name] == kind


CHOICES = variants(mma=MATRIX_ORDERS, orders=range(4))
FUSED_SUMS = [v for v in CHOICES if v.fma and not v.flush]


@pytest.mark.parametrize("gpu", [M3_MAX, M4, M4_ULTRA], ids=["s", "g", "d"])
def test_fused(gpu):
    check_kind(FUSED, "fused", gpu)
    assert check(FUSED, [operands.pairs], CHOICES, gpu) > 100000


def test_split():
    check_kind(SPLIT, "split", M4)
    assert check(SPLIT, [operands.pairs], CHOICES, M4) > 100000


def test_bias():
    check([*FUSED, *SPLIT], [operands.pairs], FUSED_SUMS, M4, bias=True)


def test_other_operands():
    for shapes in (FUSED, SPLIT):
        check(shapes, [operands.tiny, operands.specials, operands.all_patterns], variants(), M4)


def test_before_m3():
    """2 to 15 rows are tiles there."""
    shapes = [(2, 300, 128), (15, 70, 200), (3, 40, 1000)]
    check(shapes, [operands.pairs], variants(mma=MATRIX_ORDERS), M1)


@pytest.mark.slow
@pytest.mark.parametrize("gpu", [M1, M3_MAX, M4, M4_ULTRA], ids=["1", "s", "g", "d"])
def test_everywhere(gpu):
    check(MANY, [operands.pairs], CHOICES, gpu)
    check(MANY, [operands.pairs], FUSED_SUMS, gpu, bias=True)
    check(MANY, operands.GENERATORS, CHOICES[::5], gpu)
    check(MANY_SPLIT, operands.GENERATORS, CHOICES[::5], gpu)


def test_nothing_is_read_or_written_that_should_not_be():
    choices = [Variant(order=order) for order in (0, 3)]
    for bias in (False, True):
        check([*FUSED[:4], *SPLIT[:3]], [operands.pairs], choices, M4, bias, checked=True)


@pytest.mark.parametrize("bias", [False, True])
def test_several_weights_in_a_launch(bias):
    x, w = operands.operands(operands.pairs, 50, 900, 100)
    whole = pack(w[300:])
    rows = [w[:300], w[350:481], w[500:900]]
    weights = [pack(rows[0]), whole.view(50, 131), whole.view(200, 400)]
    biases = [bias_of(len(r)) for r in rows] if bias else None
    for nparts in (2, 3):
        variant = Variant(mma=nparts)
        made = ours(variant).matmul(x, weights[:nparts], biases[:nparts] if bias else None)
        for got, own in zip(made, rows, strict=False):
            want = multiply_by_mlx(x, own, variant, M4, bias)
            assert_same(got, want, f"{len(own)} rows of {nparts} parts")
