"""Our matvecs on Metal have the bits of MLX's gemv and gemv_wide, in every form."""

import mlx_operands as operands
import numpy as np
import pytest
from agreement import DOT_ORDERS, Variant, assert_same, compare, variants
from r4_comparing import M3_MAX, M4, bias_of, matvec_definition, multiply, multiply_by_mlx, ours
from r4_products import pack

# N x K: 32 lanes with and without rests of slices, groups and blocks of rows; then 4 lanes, then 8
# simdgroups.
COMMON = [(1, 130, 1536), (1, 33, 500), (1, 70, 1001), (1, 5, 68), (1, 9, 132)]
SHORT = [(1, 40, 64), (1, 33, 8), (1, 7, 37)]
LONG = [(1, 16, 4096), (1, 3, 1100), (1, 2, 2176), (1, 5, 640)]
MATVECS = [*COMMON, *SHORT, *LONG]
MANY_MATVECS = [(1, n, k) for n in (2, 3, 4, 5, 31, 64, 300)
                for k in (8, 12, 16, 63, 64, 65, 127, 128, 129, 384, 511, 640, 1024, 1100, 3840)
                ] + [(1, 4100, 200)]  # fmt: skip
WIDE = [(2, 65, 256), (5, 9, 2052), (7, 66, 1500), (11, 130, 520), (15, 64, 100)]
MANY_WIDE = [(m, n, k) for m in range(2, 16) for n in (2, 5, 64, 67)
             for k in (8, 128, 516, 1028, 2304)]  # fmt: skip
FEW = [operands.pairs, operands.tiny, operands.specials]


def check(shapes, generators, choices, **more):
    """Biases of fewer than 8 elements have no kernel."""
    shapes = [shape for shape in shapes if not more.get("bias") or shape[1] >= 8]
    return compare(
        lambda x, w, v: multiply(x, w, v, **more),
        lambda x, w, v: multiply_by_mlx(
            x, w, v, **{n: a for n, a in more.items() if n != "checked"}
        ),
        shapes,
        generators,
        choices,
    )


@pytest.mark.parametrize("bias", [False, True])
def test_one_row(bias):
    assert check(MATVECS, FEW, variants(orders=range(4)), bias=bias) > 3000


@pytest.mark.parametrize("bias", [False, True])
def test_2_to_15_rows(bias):
    """Under every order inside a dot product."""
    assert check(WIDE, FEW, variants(dot=DOT_ORDERS), gpu=M3_MAX, bias=bias) > 30000


@pytest.mark.slow
def test_one_row_everywhere():
    for bias in (False, True):
        check(MANY_MATVECS, operands.GENERATORS, variants(orders=range(4)), bias=bias)


@pytest.mark.slow
def test_2_to_15_rows_everywhere():
    choices = variants(dot=DOT_ORDERS, orders=range(4))
    check(MANY_WIDE, [operands.pairs], choices, gpu=M3_MAX)
    check(MANY_WIDE, operands.GENERATORS, choices[::5], gpu=M3_MAX)


def test_nothing_is_read_or_written_that_should_not_be():
    for shapes, gpu in ((MATVECS, M4), (WIDE, M3_MAX)):
        for bias in (False, True):
            choices = [Variant(order=order) for order in (0, 3)]
            check(shapes, [operands.pairs], choices, gpu=gpu, bias=bias, checked=True)


def test_the_plain_definition():
    """32 lanes, in C."""
    for _, n, k in COMMON:
        for generator in (operands.pairs, operands.powers_in_w, operands.wide):
            x, w = operands.operands(generator, 1, n, k)
            assert_same(multiply(x, w, Variant()), matvec_definition(x, w), f"{n} x {k}")


@pytest.mark.parametrize("m", [1, 2, 13])
@pytest.mark.parametrize("bias", [False, True])
def test_several_weights_in_a_launch(m, bias):
    """One by itself, two views of another."""
    x, w = operands.operands(operands.pairs, m, 400, 1100)
    whole = pack(w[100:])
    rows = [w[:100], w[150:231], w[250:384]]
    weights = [pack(rows[0]), whole.view(50, 81), whole.view(150, 134)]
    biases = [bias_of(len(r)) for r in rows] if bias else None
    for nparts in (2, 3):
        for order in range(4):
            variant = Variant(order=order)
            made = ours(variant, M3_MAX).matmul(
                x, weights[:nparts], biases[:nparts] if bias else None
            )
            for got, own in zip(made, rows, strict=False):
                want = multiply_by_mlx(x, own, variant, M3_MAX, bias)
                assert_same(got, want, f"{len(own)} rows of {nparts} parts")


def test_escapes_of_every_kind():
    """None, some, and nothing else."""
    rng = np.random.default_rng(5)
    for k in (500, 1536, 2052):
        x, w = operands.operands(operands.normal, 4, 12, k)
        for share in (0, 0.001, 0.05, 1):
            far = rng.random(w.shape) < share
            w[far] = w[far] & 0x807F | 0x4280
            weight = pack(w, base=110)
            assert share == 0 or len(weight.escapes) > 0
            for rows in (1, 4):
                got = ours(Variant(), M3_MAX).matmul(x[:rows], [weight])[0]
                want = multiply_by_mlx(x[:rows], w, Variant(), M3_MAX)
                assert_same(got, want, f"{k} columns, {share}")
