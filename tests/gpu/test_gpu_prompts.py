"""Products of several rows of x, and with sorted experts, equal MLX's on the GPU, bit for bit.

By tensor-core kernels, and by rebuilding weights where there is none.
"""

import re

import gpu_data as data
import mlx.core as mx
import numpy as np
import pytest
from binade.mlx import _ops
from gpu_running import DRY, assert_same_bits, kernels_of, take_served
from test_gpu_gather import experts, gather
from test_gpu_products import TRUE

# Those of models that kernels may serve; one of each number of splits that MLX plans among them.
SHAPES = [shape for shape in TRUE if shape[0] * shape[1] < 2e8]
MS = (2, 3, 8, 16, 17, 33, 64, 65, 128, 129, 256, 300)
EVERY_M = (*range(2, 131), 255, 256, 257, 512, 1024, 2048, 4096)
EVERY_M_SHAPES = [(1024, 4096), (2112, 2816)]
# Ragged rows, columns of two a lane, and those that no kernel serves.
SMALL = [(64, 64), (70, 128), (300, 704), (65, 2112), (129, 4096), (63, 128), (300, 100), (1, 64)]
EXPERTS = [
    *[(128, 704, 2816), (128, 2816, 704)],
    *[(8, 64, 128), (5, 100, 704), (4, 33, 128), (4, 70, 96)],
]
if DRY:
    SHAPES, MS, EVERY_M = [(96, 256)], (2, 17), (2, 3)
    EVERY_M_SHAPES, EXPERTS = [(96, 256)], [(4, 64, 128)]


def is_hopper():
    if DRY:
        return False
    info = mx.device_info()
    return (info["compute_capability_major"], info["compute_capability_minor"]) == (9, 0)


def check(x, w, packed, what):
    """What serves is what the path says."""
    m, (n, k) = len(x), w.shape
    x = mx.contiguous(x)
    mx.eval(x)
    take_served()
    got = _ops.r4_matmul(x, packed)
    assert_same_bits(got, x @ w.T, what)
    served = {entry[1] for entry in take_served() if entry[2:5] in ((m, n, k), (0, n, k))}
    assert served == {"gemm" if has_kernel(m, n, k) else _ops.path(packed, m)[0]}, what


def has_kernel(m, n, k):
    """As the documents say."""
    if not is_hopper() or m > 256 or n < 16 or n % 2 or k % 64:
        return False
    plan = _ops.gemm_plan(m, n, k)
    splits = re.search(r"in (\d+) splits", plan)
    return "proof" in plan and (splits is None or int(splits[1]) <= 5)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_true_shapes(shape):
    for kind in ("paired", "mixed"):
        x, w = data.operands(kind, max(MS), *shape)
        packed = _ops.r4_make(w)
        for m in MS:
            check(x[:m], w, packed, f"{shape} {kind} M={m}")
    mx.clear_cache()


@pytest.mark.parametrize("shape", EVERY_M_SHAPES, ids=str)
def test_every_m(shape):
    x, w = data.operands("paired", max(EVERY_M), *shape)
    packed = _ops.r4_make(w)
    for m in EVERY_M:
        check(x[:m], w, packed, f"{shape} M={m}")
    mx.clear_cache()


@pytest.mark.parametrize("shape", SMALL, ids=str)
@pytest.mark.parametrize("kind", data.EVERY_KIND)
def test_every_kind(kind, shape):
    """Infinities, NaN, subnormals, all patterns, escapes from none to all."""
    x, w = data.operands(kind, 130, *shape)
    special = data.WEIGHTS[kind](130, shape[1])
    packed = _ops.r4_make(w)
    for m in (2, 9, 17, 64, 130):
        check(x[:m], w, packed, f"{kind} {shape} M={m}")
        check(special[:m], w, packed, f"{kind} {shape} M={m}, x of the same kind")


@pytest.mark.parametrize("shape", [(5, 17, 4096), (2, 3, 5, 4096), (1, 40, 4096)], ids=str)
def test_x_of_any_rank(shape):
    _, w = data.operands("paired", 1, 1024, 4096)
    packed = _ops.r4_make(w)
    for x in (data.normal(shape), mx.sigmoid(data.normal(shape))):
        take_served()
        assert_same_bits(_ops.r4_matmul(x, packed), x @ w.T, str(shape))
        assert not is_hopper() or "gemm" in kernels_of(take_served(), "matmul")
    backwards, columns = data.normal(shape)[..., ::-1], data.normal((3, *shape)[::-1]).T.sum(0)
    for x in (backwards, columns, columns + 1):  # columns: not computed yet, lies by columns
        assert_same_bits(_ops.r4_matmul(x, packed), x @ w.T, str(shape))


def test_products_of_products():
    """Each reads what the one before wrote, in memory that is used again soon."""
    _, w = data.operands("normal", 1, 1024, 1024)
    packed = _ops.r4_make(w)
    x = y = data.normal((20, 1024))
    take_served()
    for _ in range(40):
        x, y = mx.sigmoid(_ops.r4_matmul(x + x, packed)), mx.sigmoid((y + y) @ w.T)
    assert_same_bits(x, y)
    assert not is_hopper() or kernels_of(take_served(), "matmul") == {"gemm": 40}


def test_gradients_and_batches():
    _, w = data.operands("normal", 1, 256, 512)
    packed, x, cotangent = _ops.r4_make(w), data.normal((20, 512)), data.normal((20, 256))
    mx.eval(x, cotangent)
    for function in (mx.vjp, mx.jvp):
        tangent = cotangent if function is mx.vjp else x
        got = function(lambda x: _ops.r4_matmul(x, packed), [x], [tangent])
        want = function(lambda x: x @ w.T, [x], [tangent])
        for a, b in zip(got, want, strict=True):
            assert_same_bits(a[0], b[0], function.__name__)
    xs = data.normal((3, 20, 512))
    assert_same_bits(
        mx.vmap(lambda x: _ops.r4_matmul(x, packed))(xs), mx.vmap(lambda x: x @ w.T)(xs)
    )


@pytest.mark.parametrize("shape", [(1024, 4096), (14336, 4096), (300, 704)], ids=str)
def test_another_order_is_caught(shape):
    """Columns in reverse are steps in reverse."""
    x, w = data.operands("paired", 40, *shape)
    turned = mx.contiguous(w[:, ::-1])
    backwards = mx.contiguous(x[:, ::-1])
    mx.eval(backwards)
    with pytest.raises(AssertionError, match="differ, first at"):
        assert_same_bits(_ops.r4_matmul(backwards, _ops.r4_make(turned)), x @ w.T)
    check(backwards, turned, _ops.r4_make(turned), "backwards")


# ---- Experts


def sorted_ids(nexperts, n, seed=0):
    return np.sort(np.random.default_rng([nexperts, n, seed]).integers(0, nexperts, n))


@pytest.mark.parametrize("shape", EXPERTS, ids=str)
@pytest.mark.parametrize("kind", ["paired", "mixed", "rows of escapes"])
def test_sorted_experts(kind, shape):
    nexperts, n, k = shape
    w = experts(kind, *shape)
    packed = _ops.r4_make(w)
    skewed = np.concatenate([np.zeros(90, np.int64), np.full(200, nexperts - 1)])
    choices = [sorted_ids(nexperts, 64), sorted_ids(nexperts, 1000), skewed, np.array([2] * 70)]
    if nexperts == 128 and kind == "paired":
        choices.append(sorted_ids(nexperts, 20000))
    kernel = _ops.path(packed, 1, sorted_indices=True)[0]
    for ids in choices:
        ids = mx.array(ids.astype(np.uint32))
        # Taken, as mlx-lm sorts it: MLX's product reads other rows where strides are a view's.
        x = data.paired_x(len(ids), k).reshape(-1, 1, k)[mx.arange(len(ids))]
        mx.eval(x)
        take_served()
        got = _ops.r4_gather_mm(x, packed, rhs_indices=ids, sorted_indices=True)
        assert_same_bits(got, gather(x, w, rhs=ids, is_sorted=True), f"{shape} {kind} {len(ids)}")
        served = take_served()
        if kernel != "rebuild":
            assert sum(kernels_of(served, "gather_mm").values()) == 1
    if is_hopper() and n >= 16 and n % 2 == 0 and k % 64 == 0:
        assert kernel == "gemm"
    mx.clear_cache()
