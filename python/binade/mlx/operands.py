"""Operands whose products show a change of order or a lost bit, as BF16 patterns, for self-checks.

Each maker returns x [M, K] and w [N, K] as uint16. The same arguments give the same.
"""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx
import numpy as np

Bits = np.ndarray  # of uint16
Maker = Callable[[np.random.Generator, int, int, int], tuple[Bits, Bits]]


def to_mlx(bits: Bits) -> mx.array:
    return mx.array(np.ascontiguousarray(bits)).view(mx.bfloat16)


def to_bits(array: mx.array) -> Bits:
    return np.array(array.view(mx.uint16))


def make(maker: Maker, m: int, n: int, k: int) -> tuple[Bits, Bits]:
    return maker(np.random.default_rng([m, n, k]), m, n, k)


def random_bits(rng: np.random.Generator, shape: tuple[int, ...], low: int, high: int) -> Bits:
    """Any sign and mantissa; the exponent's bits are low to high, both included."""
    raw = rng.integers(0, 1 << 16, shape, np.uint16) & 0x807F
    return raw | rng.integers(low, high + 1, shape, np.uint16) << 7


def cancelling(rng: np.random.Generator, m: int, n: int, k: int) -> tuple[Bits, Bits]:
    """Products of 2^-40 to 2^40, each of which another column takes away again.

    The few columns left over are small, so that the roundings on the way are what a sum ends as.
    """
    x, w = random_bits(rng, (m, k), 120, 128), random_bits(rng, (n, k), 117, 123)
    columns = rng.permutation(k)
    half = (k - k // 16) // 2
    added, taken = columns[:half], columns[half : 2 * half]
    x[:, taken] = x[:, added]
    w[:, added] = random_bits(rng, (n, half), 87, 167)
    w[:, taken] = w[:, added] ^ 0x8000
    return x, w


def comings_and_goings(rng: np.random.Generator, m: int, n: int, k: int) -> tuple[Bits, Bits]:
    """Ones, and powers of two that come and go between them: a one counts while none is there."""
    one = 0x3F80
    x, w = np.full((m, k), one, np.uint16), np.full((n, k), one, np.uint16)
    for row in w:
        come = np.arange(0, k - 3, 4)
        power = rng.integers(147, 157, come.shape, np.uint16) << 7
        row[come + rng.integers(0, 2, come.shape)] = power
        row[come + rng.integers(2, 4, come.shape)] = power | 0x8000
    return x, w


def large_and_small(rng: np.random.Generator, m: int, n: int, k: int) -> tuple[Bits, Bits]:
    """Sums whose terms differ by up to 2^80."""
    return random_bits(rng, (m, k), 107, 147), random_bits(rng, (n, k), 107, 147)


def subnormal(rng: np.random.Generator, m: int, n: int, k: int) -> tuple[Bits, Bits]:
    """Weights that are subnormal or nearly, and sums that are."""
    return random_bits(rng, (m, k), 119, 130), random_bits(rng, (n, k), 0, 12)


def special(rng: np.random.Generator, m: int, n: int, k: int) -> tuple[Bits, Bits]:
    """Here and there an infinity, a NaN, a zero of either sign."""
    x, w = random_bits(rng, (m, k), 120, 128), random_bits(rng, (n, k), 110, 126)
    values = np.array([0x7F80, 0xFF80, 0x7FC1, 0xFF81, 0x0000, 0x8000], np.uint16)
    for bits in (x, w):
        places = rng.random(bits.shape) < 0.5 / max(k, 4)
        bits[places] = rng.choice(values, np.count_nonzero(places))
    return x, w


def all_patterns(rng: np.random.Generator, m: int, n: int, k: int) -> tuple[Bits, Bits]:
    """Every one of the 65,536 in w, as far as there is room, in an order that mixes them."""
    w = (np.arange(n * k, dtype=np.uint32) * 40503).astype(np.uint16).reshape(n, k)
    return random_bits(rng, (m, k), 120, 128), w


def with_escapes(share: float) -> Maker:
    """Weights of 15 exponents, but for this share, which have others."""

    def maker(rng: np.random.Generator, m: int, n: int, k: int) -> tuple[Bits, Bits]:
        w = random_bits(rng, (n, k), 112, 126)
        others = random_bits(rng, (n, k), 87, 167)
        return random_bits(rng, (m, k), 117, 131), np.where(rng.random((n, k)) < share, others, w)

    maker.__name__ = f"{share:.0%} escapes"
    return maker


# In these a sum in another order has other bits, in nearly every output.
ORDERED: list[Maker] = [cancelling, comings_and_goings]
MAKERS: list[Maker] = [
    *ORDERED,
    *(large_and_small, subnormal, special, all_patterns),
    *(with_escapes(share) for share in (0, 0.01, 0.5, 1)),
]
