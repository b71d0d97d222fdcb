"""Comparing products bit for bit, under every choice that is not ours to make: whether products and
sums are fused, whether subnormals are flushed, the order inside matrix steps and dot products, and
the order in which threads run."""

import dataclasses
import itertools

import mlx_operands
import numpy as np

ORDERS_OF_THREADS = range(4)
MATRIX_ORDERS = range(6)
DOT_ORDERS = range(4)
FILLS = (0xA5, 0xFF)


@dataclasses.dataclass(frozen=True)
class Variant:
    """One choice: `fma` when compiling, the rest at a launch."""

    fma: bool = True
    flush: int = 0
    mma: int = 0
    dot: int = 0
    order: int = 0
    fill: int = 0xA5

    def options(self):
        options = dataclasses.asdict(self)
        del options["fma"]
        return options


def variants(mma=(0,), dot=(0,), orders=(0,), full=False):
    """All choices of numbers, each with an order of threads and a fill; `full`: with every one."""
    numbers = itertools.product((True, False), (0, 1), mma, dot)
    if full:
        return [
            Variant(*chosen, order=order, fill=fill)
            for chosen in numbers
            for order, fill in itertools.product(orders, FILLS)
        ]
    return [
        Variant(*chosen, order=orders[i % len(orders)], fill=FILLS[i % 2])
        for i, chosen in enumerate(numbers)
    ]


def differing(got, want):
    """How many of two arrays of patterns differ."""
    assert got.shape == want.shape, f"{got.shape}, not {want.shape}"
    return int((got != want).sum())


def assert_same(got, want, what):
    different = differing(got, want)
    if different:
        first = np.argwhere(got != want)[0].tolist()
        raise AssertionError(f"{what}: {different} of {got.size} differ, first at {first}")


def compare(ours, oracle, shapes, generators, choices):
    """Asserts that ours(x, w, variant) and oracle(x, w, variant) give the same bits; returns how
    many outputs were compared. Shapes are (m, n, k)."""
    compared = 0
    for shape in shapes:
        for generator in generators:
            x, w = mlx_operands.operands(generator, *shape)
            for variant in choices:
                want = oracle(x, w, variant)
                assert_same(ours(x, w, variant), want, f"{shape}, {generator.__name__}, {variant}")
                compared += want.size
    return compared
