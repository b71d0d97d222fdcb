"""Streams of formats 1 and 2 (docs/FORMAT.md), tile by tile, with any valid choice of widths: what
loading must take, not only what packing writes."""

import dataclasses

import numpy as np

TILE = 128


def ranks_of(w):
    """The table, and each weight's rank."""
    exponents = (w >> 7) & 255
    counts = np.bincount(exponents.reshape(-1), minlength=256)
    order = np.array(sorted(range(256), key=lambda e: (-counts[e], e)))
    rank_of = np.empty(256, np.int64)
    rank_of[order] = np.arange(256)
    table = np.where(counts[order] > 0, order, 0).astype(np.uint8)
    return table, rank_of[exponents]


def raw_of(w):
    return ((w >> 8 & 0x80) | (w & 0x7F)).astype(np.uint8)


def words_of(bits):
    bits = np.concatenate([bits, np.zeros(-len(bits) % 32, np.uint8)])
    return np.packbits(bits, bitorder="little").view(np.uint32)


def tiles_of(row):
    return [row[i : i + TILE] for i in range(0, len(row), TILE)]


def low_bits(values, width):
    return (values[:, None] >> np.arange(width) & 1).astype(np.uint8).reshape(-1)


@dataclasses.dataclass
class Rice:
    raw: np.ndarray
    table: np.ndarray
    meta: np.ndarray
    bits: np.ndarray
    row_starts: np.ndarray


def rice_tile(rng, ranks):
    k = int(rng.choice([k for k in range(4) if ranks.max() >> k <= 63]))
    q = ranks >> k
    planes = [(q[q >= j] > j).astype(np.uint8) for j in range(q.max())]
    return k | int(q.max()) << 2, np.concatenate([low_bits(ranks, k), *planes])


def rice(rng, w):
    table, ranks = ranks_of(w)
    meta, words, starts = [], [], []
    for row in ranks:
        starts.append(sum(map(len, words)))
        coded = [rice_tile(rng, tile) for tile in tiles_of(row)]
        meta += [m for m, _ in coded]
        words.append(words_of(np.concatenate([b for _, b in coded])))
    bits = np.concatenate(words).astype(np.uint32)
    return Rice(raw_of(w), table, np.array(meta, np.uint8), bits, np.array(starts, np.uint32))


@dataclasses.dataclass
class Fixed:
    raw: np.ndarray
    table: np.ndarray
    meta: np.ndarray
    idx: np.ndarray
    esc: np.ndarray


def fixed_tile(rng, ranks, exponents):
    """Meta, codes and escapes of a whole tile of ranks."""
    least = int(ranks.max()).bit_length()
    choices = [*range(least, 9), *(b | 16 for b in range(1, 5))]
    meta = int(rng.choice(choices))
    width = meta & 15
    if meta < 16:
        return meta, low_bits(ranks, width), []
    top = (1 << width) - 1
    return meta, low_bits(np.minimum(ranks, top), width), exponents[ranks >= top]


def fixed(rng, w):
    table, ranks = ranks_of(w)
    meta, words, escapes = [], [], []
    for row, weights in zip(ranks, w, strict=True):
        more = -len(row) % TILE
        row = np.concatenate([row, np.zeros(more, row.dtype)])
        exponents = np.concatenate([weights >> 7 & 255, np.full(more, table[0])])
        for tile, own in zip(tiles_of(row), tiles_of(exponents), strict=True):
            m, bits, escaped = fixed_tile(rng, tile, own)
            meta.append(m)
            words.append(words_of(bits))
            escapes.append(escaped)
    idx = np.concatenate(words).astype(np.uint32)
    esc = np.concatenate(escapes).astype(np.uint8)
    return Fixed(raw_of(w), table, np.array(meta, np.uint8), idx, esc)
