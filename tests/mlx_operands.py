"""Operands whose products show any change of order, as BF16 patterns, and ways to compare bits.

Generators return x [M, K] and w [N, K] as uint16. Sums in other orders are here too: what a kernel
must not do, so that tests can show that their data would tell.
"""

import mlx.core as mx
import numpy as np

F32 = np.float32


# ---- Bits


def to_mlx(bits):
    return mx.array(np.ascontiguousarray(bits)).view(mx.bfloat16)


def bits_of(array):
    assert array.dtype == mx.bfloat16
    return np.array(array.view(mx.uint16))


def assert_same_bits(got, want, what=""):
    x, y = bits_of(got), bits_of(want)
    assert x.shape == y.shape, f"{what}: {x.shape}, not {y.shape}"
    wrong = np.argwhere(x != y)
    assert not len(wrong), f"{what}: {len(wrong)} of {x.size} differ, first at {wrong[0].tolist()}"


def widen(bits):
    return (bits.astype(np.uint32) << 16).view(F32)


def narrow(values):
    """float32 to BF16 as MLX does: to nearest even, every NaN the same."""
    raw = values.view(np.uint32).astype(np.uint64)
    rounded = (raw + 0x7FFF + (raw >> 16 & 1)) >> 16
    return np.where(np.isnan(values), 0x7FC0, rounded).astype(np.uint16)


# ---- Generators


def random_bits(rng, shape, low, high):
    """Random sign and mantissa, biased exponents uniform in low..high."""
    sign_mantissa = rng.integers(0, 1 << 16, shape, np.uint16) & 0x807F
    return sign_mantissa | (rng.integers(low, high + 1, shape, np.uint16) << 7)


def normal_bits(rng, shape, scale=1.0):
    return narrow(rng.standard_normal(shape, F32) * F32(scale))


def normal(rng, m, n, k):
    return normal_bits(rng, (m, k)), normal_bits(rng, (n, k), 0.05)


def wide(rng, m, n, k):
    return random_bits(rng, (m, k), 112, 142), random_bits(rng, (n, k), 97, 157)


def pairs(rng, m, n, k):
    """Products of 2^-40 to 2^40, most of which another column takes away again."""
    x, w = normal(rng, m, n, k)
    order = rng.permutation(k)
    half = (k - k // 16) // 2
    a, b = order[:half], order[half : 2 * half]
    x[:, b] = x[:, a]
    w[:, a] = random_bits(rng, (n, half), 87, 167)
    w[:, b] = w[:, a] ^ 0x8000
    return x, w


def powers(rng, nrows, k):
    """Rows of ones, between which 2^e comes and goes: a one counts while it is away."""
    values = np.ones((nrows, k), F32)
    for row in values:
        for i in range(0, k - 3, 4):
            large = F32(2.0 ** rng.integers(20, 30))
            come, go = sorted(rng.choice(4, 2, replace=False))
            row[i + come], row[i + go] = large, -large
    return narrow(values)


def powers_in_w(rng, m, n, k):
    return narrow(np.ones((m, k), F32)), powers(rng, n, k)


def powers_in_x(rng, m, n, k):
    return powers(rng, m, k), narrow(np.ones((n, k), F32))


def tiny(rng, m, n, k):
    """Subnormal weights, and sums that are subnormal too or of products that all round to 0.

    Products down to 2^-135 only: below it, where they are fused, bits may differ between CPUs.
    """
    return random_bits(rng, (m, k), 119, 130), random_bits(rng, (n, k), 0, 12)


def all_patterns(rng, m, n, k):
    """All 65,536, as far as w has room; NaN and infinities come to most rows."""
    w = (np.arange(n * k, dtype=np.uint32) * 40503 & 0xFFFF).astype(np.uint16).reshape(n, k)
    return normal_bits(rng, (m, k)), w


def all_finite(rng, m, n, k):
    x, w = (rng.integers(0, 1 << 16, shape, np.uint16) for shape in ((m, k), (n, k)))
    for bits in (x, w):
        bits[(bits & 0x7F80) == 0x7F80] &= 0xBFFF
    return x, w


def specials(rng, m, n, k):
    """Here and there an infinity, a NaN with its payload, a zero of either sign."""
    x, w = normal(rng, m, n, k)
    values = np.array([0x7F80, 0xFF80, 0x7FC1, 0xFF81, 0x0000, 0x8000], np.uint16)
    for bits in (x, w):
        where = rng.random(bits.shape) < 0.5 / max(k, 4)
        bits[where] = rng.choice(values, where.sum())
    return x, w


GENERATORS = [
    *(pairs, normal, wide, powers_in_w, powers_in_x),
    *(tiny, all_patterns, all_finite, specials),
]


def operands(generator, m, n, k):
    """Each call with the same arguments gives the same."""
    rng = np.random.default_rng([GENERATORS.index(generator), m, n, k])
    with np.errstate(all="ignore"):
        return generator(rng, m, n, k)


def values(seed, *shape):
    """An MLX array of normal values."""
    return to_mlx(normal_bits(np.random.default_rng(seed), shape))


# ---- Orders


def chain(x, w, columns):
    """One float32 sum for each output, over the columns in the order given."""
    x, w = widen(x), widen(w)
    total = np.zeros((len(x), len(w)), F32)
    for k in columns:
        total += x[:, k, None] * w[:, k]
    return total


def ascending(x, w):
    return chain(x, w, range(x.shape[1]))


def reversed_order(x, w):
    return chain(x, w, reversed(range(x.shape[1])))


def eight_lanes(x, w):
    """As a dot product in one register of eight: lane by lane, then the lanes in order."""
    return sum(
        (chain(x, w, range(lane, x.shape[1], 8)) for lane in range(1, 8)),
        start=chain(x, w, range(0, x.shape[1], 8)),
    )


def blocks_of_16(x, w):
    """Blocks of columns summed by themselves, then the blocks in order."""
    starts = range(0, x.shape[1], 16)
    blocks = [chain(x, w, range(k, min(k + 16, x.shape[1]))) for k in starts]
    return sum(blocks[1:], start=blocks[0])


def in_double(x, w):
    return (widen(x).astype(np.float64) @ widen(w).astype(np.float64).T).astype(F32)


WRONG_ORDERS = [reversed_order, eight_lanes, blocks_of_16, in_double]
