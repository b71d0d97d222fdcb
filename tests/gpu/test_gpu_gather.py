"""Products with experts equal MLX's gather_mm on the GPU, bit for bit.

Unsorted ones of one row each, as few tokens need them, are served by kernels.
"""

import gpu_data as data
import mlx.core as mx
import numpy as np
import pytest
from binade.mlx import _ops
from gpu_running import DRY, assert_same_bits, kernels_of, take_served

# Experts, R, K; the last four are true.
SHAPES = [
    *[(4, 33, 70), (4, 50, 130), (4, 17, 100), (4, 1, 64), (4, 9, 4), (128, 33, 192), (4, 8, 8192)],
    *[(128, 704, 2816), (128, 2816, 704), (128, 768, 2048), (128, 2048, 768)],
]
# Tokens and experts for each: 1 to 63 indices, which SwitchGLU does not sort.
TOKENS = [(1, 1), (1, 8), (3, 1), (4, 8), (7, 8), (9, 7)]
if DRY:
    SHAPES, TOKENS = [(4, 33, 70), (16, 24, 128)], [(1, 1), (1, 8), (9, 7)]


def experts(kind, nexperts, n, k, seed=0):
    _, w = data.operands(kind, 1, nexperts * n, k, seed)
    return w.reshape(nexperts, n, k)


def choose(nexperts, tokens, chosen, seed=0):
    """Distinct experts for each token, as far as there are so many."""
    rng = np.random.default_rng([nexperts, tokens, chosen, seed])
    rows = [rng.permutation(max(nexperts, chosen))[:chosen] % nexperts for _ in range(tokens)]
    return mx.array(np.stack(rows).astype(np.uint32))


def gather(x, w, lhs=None, rhs=None, is_sorted=False):
    """MLX's; on its CPU backend, which gathers no BF16, a product for each index."""
    if not DRY:
        return mx.gather_mm(
            x, w.swapaxes(-1, -2), lhs_indices=lhs, rhs_indices=rhs, sorted_indices=is_sorted
        )
    batch = x.shape[:-2]
    lhs = mx.arange(int(np.prod(batch))).reshape(batch) if lhs is None else lhs
    lhs, rhs = mx.broadcast_arrays(lhs, rhs)
    flat = x.reshape(-1, *x.shape[-2:])
    pairs = zip(lhs.reshape(-1).tolist(), rhs.reshape(-1).tolist(), strict=True)
    ys = [flat[i] @ w[e].T for i, e in pairs]
    return mx.stack(ys).reshape(*rhs.shape, x.shape[-2], w.shape[1])


def compare(x, w, packed, what, **indices):
    is_sorted = indices.pop("is_sorted", False)
    got = _ops.r4_gather_mm(x, packed, indices.get("lhs"), indices["rhs"], sorted_indices=is_sorted)
    assert_same_bits(got, gather(x, w, is_sorted=is_sorted, **indices), what)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_unsorted(shape):
    """In the shapes of SwitchLinear: gate and up, then down."""
    nexperts, n, k = shape
    for kind in data.BITING if nexperts * n * k < 1e7 else ["paired", "mixed"]:
        w = experts(kind, *shape)
        packed = _ops.r4_make(w)
        take_served()
        for tokens, chosen in TOKENS:
            rhs = choose(nexperts, tokens, chosen)
            what = f"{shape} {kind} {tokens} tokens, {chosen} experts"
            x = data.paired_x(tokens * chosen, k)
            compare(x[:tokens, None, None], w, packed, what, rhs=rhs)
            compare(x[:tokens].reshape(1, tokens, 1, 1, k), w, packed, what, rhs=rhs[None])
            # Each expert has an x of its own.
            compare(x.reshape(1, tokens, chosen, 1, k), w, packed, what, rhs=rhs[None])
        kernels = kernels_of(take_served(), "gather_mm")
        assert sum(kernels.values()) == 3 * len(TOKENS)
        assert "rebuild" not in kernels
    mx.clear_cache()


@pytest.mark.parametrize("shape", SHAPES[:4] + SHAPES[-2:], ids=str)
def test_other_ways_to_ask(shape):
    nexperts, n, k = shape
    w = experts("paired", *shape)
    packed = _ops.r4_make(w)
    rng = np.random.default_rng(n)
    many = data.paired_x(120, k)
    lhs, rhs = (mx.array(rng.integers(0, m, (5, 4)).astype(np.uint32)) for m in (20, nexperts))
    x = many[:20, None]
    compare(x, w, packed, "lhs", lhs=lhs, rhs=rhs)
    compare(x, w, packed, "int32", lhs=lhs.astype(mx.int32), rhs=rhs.astype(mx.int32))
    compare(x, w, packed, "lhs broadcast", lhs=lhs, rhs=rhs[:, :1])
    compare(x, w, packed, "strided indices", lhs=lhs.T, rhs=rhs.T)
    compare(x, w, packed, "one expert for all", lhs=lhs, rhs=mx.zeros_like(rhs))
    compare(many[:40:2, None], w, packed, "strided x", lhs=lhs, rhs=rhs)
    compare(many[:60].reshape(20, 3, k), w, packed, "three rows", lhs=lhs, rhs=rhs)
    compare(many[:1, None], w, packed, "one x, several experts", rhs=rhs[0])
    if n == 1:
        return  # MLX's own kernel for that ends the process where x is part of a wider one
    wide = mx.concatenate([data.normal((20, 3)), many[:20], data.normal((20, 5))], axis=1)
    mx.eval(wide)
    compare(wide[:, None, 3 : k + 3], w, packed, "a part of a wider one", lhs=lhs, rhs=rhs)
    flat = mx.concatenate([data.normal((1,)), many[0]])
    mx.eval(flat)
    compare(flat[None, None, 1:], w, packed, "x at an offset", rhs=rhs[0, :1])


@pytest.mark.parametrize("shape", SHAPES[:4] + SHAPES[-2:], ids=str)
@pytest.mark.parametrize("count", [64, 100, 512])
def test_sorted(shape, count):
    """As SwitchGLU sorts them, from 64 indices on: rebuilt, and MLX's own operation."""
    nexperts, _, k = shape
    w = experts("paired", *shape)
    packed = _ops.r4_make(w)
    rhs = mx.sort(mx.random.randint(0, nexperts, (count,)).astype(mx.uint32))
    x = data.paired_x(count, k)[:, None]
    compare(x, w, packed, "sorted", rhs=rhs, is_sorted=True)
    compare(x, w, packed, "not said to be sorted", rhs=rhs)
    lhs = mx.arange(count, dtype=mx.uint32)
    compare(x, w, packed, "sorted, with lhs", lhs=lhs, rhs=rhs, is_sorted=True)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", ["paired", "mixed"])
def test_two_weights(kind, shape):
    """Gate and up in one, each with a base of its own."""
    nexperts, n, k = shape
    weights = [experts(kind, *shape), experts("one in 10", nexperts, n, k, 1)]
    packed = [_ops.r4_make(w) for w in weights]
    take_served()
    for tokens, chosen in TOKENS:
        rhs = choose(nexperts, tokens, chosen)[None]
        x = data.paired_x(tokens, k).reshape(1, tokens, 1, 1, k)
        ys = _ops.r4_gather_mms(x, packed, rhs_indices=rhs)
        for y, w in zip(ys, weights, strict=True):
            assert_same_bits(y, gather(x, w, rhs=rhs), f"{kind} {shape} {tokens} {chosen}")
    kernels = kernels_of(take_served(), "gather_mm")
    assert sum(kernels.values()) == 2 * len(TOKENS)
    assert "rebuild" not in kernels
    # Many, sorted; and rows that indices name.
    rhs = mx.sort(mx.random.randint(0, nexperts, (80,)).astype(mx.uint32))
    x = data.paired_x(80, k)[:, None]
    ys = _ops.r4_gather_mms(x, packed, rhs_indices=rhs, sorted_indices=True)
    lhs = mx.random.randint(0, 80, (6, 3)).astype(mx.uint32)
    few = rhs[:18].reshape(6, 3)
    named = _ops.r4_gather_mms(x, packed, lhs_indices=lhs, rhs_indices=few)
    for y, one, w in zip(ys, named, weights, strict=True):
        assert_same_bits(y, gather(x, w, rhs=rhs, is_sorted=True), "sorted")
        assert_same_bits(one, gather(x, w, lhs=lhs, rhs=few), "named rows")
    mx.clear_cache()


def test_special_values():
    for kind in ("specials", "all patterns", "subnormal", "any exponents"):
        w = experts(kind, 5, 40, 128)
        rhs = choose(5, 6, 3)
        x = data.paired_x(6, 128)[:, None, None]
        compare(x, w, _ops.r4_make(w), kind, rhs=rhs)


def test_compile():
    w = experts("paired", 6, 40, 128)
    packed = _ops.r4_make(w)

    @mx.compile
    def ours(x, rhs):
        a, b = _ops.r4_gather_mms(x, [packed, packed], rhs_indices=rhs)
        return a * b, _ops.r4_gather_mm(x, packed, rhs_indices=rhs)

    for tokens in (1, 5, 1):
        x, rhs = data.paired_x(tokens, 128)[:, None, None], choose(6, tokens, 3)
        want = gather(x, w, rhs=rhs)
        for got, expected in zip(ours(x, rhs), (want * want, want), strict=True):
            assert_same_bits(got, expected)


def test_a_matrix_and_nothing():
    _, w = data.operands("paired", 1, 40, 128)
    packed = _ops.r4_make(w)
    rhs = mx.zeros((3,), mx.uint32)
    compare(data.paired_x(3, 128)[:, None], w[None], packed, "a matrix", rhs=rhs)
    nothing = _ops.r4_gather_mm(
        mx.zeros((0, 1, 128), mx.bfloat16), packed, rhs_indices=mx.zeros((0,), mx.uint32)
    )
    assert nothing.shape == (0, 1, 40)


def test_another_order_is_caught():
    w = experts("paired", 4, 64, 704)
    x, rhs = data.paired_x(2, 704)[:, None, None], choose(4, 2, 3)
    got = _ops.r4_gather_mm(
        x[..., ::-1], _ops.r4_make(mx.contiguous(w[..., ::-1])), rhs_indices=rhs
    )
    with pytest.raises(AssertionError, match="differ, first at"):
        assert_same_bits(got, gather(x, w, rhs=rhs))
