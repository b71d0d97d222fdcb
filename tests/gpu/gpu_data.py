"""Operands for a GPU: made there, since the true shapes have up to a billion weights.

A kind makes x [M, K] and w [N, K] that bite; what each is for is said where it is made. Smaller
operands come from mlx_operands, whose kinds are more.
"""

import mlx.core as mx
import numpy as np


def random_bits(shape, low, high):
    """BF16: random sign and mantissa, biased exponents uniform in low..high."""
    raw = mx.random.randint(0, 256, shape, mx.uint16)
    exponents = mx.random.randint(low, high + 1, shape, mx.uint16)
    return as_bf16((raw & 0x80) << 8 | exponents << 7 | raw & 0x7F)


def as_bf16(bits):
    return bits.astype(mx.uint16).view(mx.bfloat16)


def bits_of(array):
    return array.view(mx.uint16)


def normal(shape, scale=1.0):
    return (mx.random.normal(shape) * scale).astype(mx.bfloat16)


def pair_columns(k):
    """Columns that come in pairs, and places that put pairs far apart."""
    half = (k - k // 16) // 2
    return half, mx.array(np.random.default_rng(k).permutation(k))


def paired_x(m, k):
    """Both columns of a pair hold the same, so that `paired` cancels; else it is normal."""
    half, places = pair_columns(k)
    x = normal((m, k))
    return mx.take(mx.concatenate([x[:, :half], x[:, :half], x[:, 2 * half :]], 1), places, 1)


def paired(n, k):
    """Products of 2^-40 to 2^40, most of which another column takes away again."""
    half, places = pair_columns(k)
    w = random_bits((n, half), 87, 167)
    parts = [w, as_bf16(bits_of(w) ^ 0x8000), normal((n, k - 2 * half), 0.05)]
    return mx.take(mx.concatenate(parts, 1), places, 1)


def sprinkled(n, k, share, low=20, high=250):
    """Normal weights, a share of them of any exponents: escapes."""
    where = mx.random.uniform(shape=(n, k)) < share
    return mx.where(where, random_bits((n, k), low, high), normal((n, k), 0.05))


def with_specials(n, k):
    """Here and there an infinity, a NaN with its payload, a zero of either sign."""
    values = mx.array([0x7F80, 0xFF80, 0x7FC1, 0xFF81, 0x0000, 0x8000], mx.uint16)
    chosen = as_bf16(values[mx.random.randint(0, 6, (n, k))])
    return mx.where(mx.random.uniform(shape=(n, k)) < 0.5 / max(k, 4), chosen, normal((n, k)))


def all_patterns(n, k):
    patterns = mx.arange(n * k, dtype=mx.uint32) * 40503 & 0xFFFF
    return as_bf16(patterns.reshape(n, k))


def escaping_rows(n, k):
    """Rows without an escape, and rows of nothing else."""
    far = mx.arange(n)[:, None] % 4 == 0
    return mx.where(far, random_bits((n, k), 190, 200), random_bits((n, k), 112, 126))


WEIGHTS = {
    "normal": lambda n, k: normal((n, k), 0.05),
    "paired": paired,
    "no escapes": lambda n, k: random_bits((n, k), 112, 126),
    "one in 1000": lambda n, k: sprinkled(n, k, 0.001, 100, 140),
    "one in 10": lambda n, k: sprinkled(n, k, 0.1, 90, 150),
    "rows of escapes": escaping_rows,
    "wide": lambda n, k: random_bits((n, k), 97, 157),
    "any exponents": lambda n, k: random_bits((n, k), 0, 254),
    "subnormal": lambda n, k: random_bits((n, k), 0, 12),
    "specials": with_specials,
    "all patterns": all_patterns,
}


def mixed(n, k):
    """Rows of most kinds in turns, in one weight."""
    kinds = ("normal", "paired", "one in 1000", "wide", "paired", "specials")
    at = mx.arange(n) % len(kinds)
    w = mx.zeros((n, k), mx.bfloat16)
    for i, kind in enumerate(kinds):
        w = mx.where((at == i)[:, None], WEIGHTS[kind](n, k), w)
    return w


WEIGHTS["mixed"] = mixed
EVERY_KIND = list(WEIGHTS)
BITING = ["normal", "paired", "rows of escapes", "mixed"]
ONE_KIND = ["mixed"]


def row_by_row(w):
    """With the strides of a weight that was read from a file, of one row or column too."""
    return w.reshape(-1).reshape(w.shape)


def operands(kind, m, n, k, seed=0):
    """x [m, k] and w [n, k]; each call with the same arguments gives the same.

    w lies row by row, as checkpoints do: MLX multiplies by others in other ways.
    """
    mx.random.seed(hash((EVERY_KIND.index(kind), m, n, k, seed)) & 0xFFFFFFFF)
    x, w = paired_x(m, k), row_by_row(WEIGHTS[kind](n, k))
    mx.eval(x, w)
    return x, w


def gemv_order(x, w, n):
    """MLX's sums of one row of x on CUDA, as float32: 32 lanes take n columns in turns.

    The products must neither over- nor underflow: a fused sum of such is an exact product, added.
    """
    x, w = (np.array(a.astype(mx.float32)) for a in (x.reshape(-1), w))
    k = x.size
    lanes = np.zeros((len(w), 32), np.float32)
    for base in range(0, k, 32 * n):
        for j in range(n):
            columns = base + n * np.arange(32) + j
            here = columns < k
            columns = columns[here]
            lanes[:, here] += w[:, columns] * x[columns]
    for d in (16, 8, 4, 2, 1):
        lanes = lanes + lanes[:, np.arange(32) ^ d]
    return mx.array(lanes[:, 0])
