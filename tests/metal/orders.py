"""MLX's orders of sums on Metal in plain numpy, written from their description and not from the
kernels: what the emulated kernels are compared with, to show that both are right. W's rows and x's
are independent, so everything is computed for all outputs at once.

Products are rounded, then added; operands must keep them in range, where fused sums are the same.
"""

import numpy as np
from mlx_operands import narrow, widen

F32 = np.float32


def products(x, w):
    """[M, N, K], each exact."""
    return widen(x)[:, None, :] * widen(w)[None, :, :]


def pad(p, multiple):
    """Zeros to a multiple of columns."""
    more = -p.shape[-1] % multiple
    return np.concatenate([p, np.zeros((*p.shape[:-1], more), F32)], axis=-1)


def chain(p):
    total = np.zeros(p.shape[:-1], F32)
    for k in range(p.shape[-1]):
        total = total + p[..., k]
    return total


def shuffle_down(lanes, width):
    """Sums of `width` lanes, by halves."""
    while width > 1:
        width //= 2
        lanes = lanes[..., :width] + lanes[..., width : 2 * width]
    return lanes[..., 0]


def matvec_tree(x, w, lanes, groups):
    """`groups` simdgroups side by side, `lanes` lanes of each for a row, four columns each time."""
    span = 4 * lanes * groups
    p = pad(products(x, w), span)
    p = p.reshape(*p.shape[:2], -1, groups, lanes, 4)
    total = np.zeros((*p.shape[:2], groups, lanes), F32)
    for step in range(p.shape[2]):
        for i in range(4):
            total = total + p[:, :, step, :, :, i]
    sums = shuffle_down(total, lanes)
    result = sums[..., 0]
    for group in range(1, groups):
        result = result + sums[..., group]
    return narrow(result)


def gemv(x, w):
    n, k = w.shape
    if k <= 64:
        return matvec_tree(x, w, 4, 1)
    return matvec_tree(x, w, 32, 8 if k >= 16 * n else 1)


def gather(x, w):
    return matvec_tree(x, w, 32, 1)


def plain(x, w):
    return narrow(chain(products(x, w)))


def dot4(p, order):
    a, b, c, d = (p[..., i] for i in range(4))
    return [
        lambda: ((a + b) + c) + d,
        lambda: ((d + c) + b) + a,
        lambda: (a + b) + (c + d),
        lambda: (a + c) + (b + d),
    ][order]()


def wide(x, w, lanes, order):
    """Chunks of four: blocks of eight a lane are summed by themselves, the rest one by one."""
    p = products(x, w)
    chunks = dot4(p.reshape(*p.shape[:2], -1, 4), order)
    total = np.zeros((*p.shape[:2], lanes), F32)
    whole = chunks.shape[-1] // (8 * lanes) * 8 * lanes
    blocks = chunks[..., :whole].reshape(*p.shape[:2], -1, 8, lanes)
    for block in range(blocks.shape[2]):
        inner = np.zeros_like(total)
        for i in range(8):
            inner = inner + blocks[:, :, block, i]
        total = total + inner
    rest = pad(chunks[..., whole:], lanes)
    for start in range(0, rest.shape[-1], lanes):
        total = total + rest[..., start : start + lanes]
    return narrow(shuffle_down(total, lanes))


def matrix_step(total, p, order):
    """Eight products into an accumulator."""
    if order == 0:
        for k in range(8):
            total = total + p[..., k]
        return total
    if order == 1:
        for k in range(7, -1, -1):
            total = total + p[..., k]
        return total
    if order == 2:
        return total + chain(p)
    if order == 3:
        pairs = p[..., 0::2] + p[..., 1::2]
        return total + ((pairs[..., 0] + pairs[..., 1]) + (pairs[..., 2] + pairs[..., 3]))
    if order == 4:
        return (total + chain(p[..., :4])) + chain(p[..., 4:])
    even = total
    for k in range(0, 8, 2):
        even = even + p[..., k]
    return even + chain(p[..., 1::2])


def matrix_chain(p, order):
    """All columns by eights."""
    total = np.zeros(p.shape[:2], F32)
    p = pad(p, 8)
    for k in range(0, p.shape[-1], 8):
        total = matrix_step(total, p[..., k : k + 8], order)
    return total


def fused(x, w, bk, order, tail_first=True):
    """The K tail, padded to bk with zeros, comes first."""
    p = products(x, w)
    tail = p.shape[-1] % bk
    whole = p[..., : p.shape[-1] - tail]
    if not tail:
        return narrow(matrix_chain(p, order))
    padded = pad(p[..., whole.shape[-1] :], bk)
    parts = [padded, whole] if tail_first else [whole, padded]
    return narrow(matrix_chain(np.concatenate(parts, axis=-1), order))


def split(x, w, parts, order):
    """Parts of K by themselves, the last with what is left; then their sum from 0."""
    p = products(x, w)
    size = p.shape[-1] // 16 // parts * 16
    total = np.zeros(p.shape[:2], F32)
    for part in range(parts):
        end = (part + 1) * size if part + 1 < parts else p.shape[-1]
        total = total + matrix_chain(pad(p[..., part * size : end], 16), order)
    return narrow(total)
