"""Gradients and mapping of the MLX operations: the bits of MLX's own."""

import numpy as np
import pytest

mx = pytest.importorskip("mlx.core")

from binade.mlx import _ops  # noqa: E402
from mlx_operands import assert_same_bits, pairs, to_mlx, values  # noqa: E402

R, K, E = 44, 70, 5
WEIGHT = to_mlx(pairs(np.random.default_rng(1), 1, R, K)[1])
PACKED = _ops.r4_make(WEIGHT)
EXPERTS = values(2, E, R, K)
PACKED_EXPERTS = _ops.r4_make(EXPERTS)


def grads_of(function, *arguments, which=(0,)):
    dy = values(99, *function(*arguments).shape)
    grads = mx.grad(lambda *a: (function(*a) * dy).sum(), argnums=which)(*arguments)
    return grads if len(which) > 1 else [grads]


@pytest.mark.parametrize("shape", [(1, K), (7, K), (2, 3, K)])
def test_gradients(shape):
    x, bias = values(25, *shape), values(26, R)
    (got,) = grads_of(lambda x: _ops.r4_matmul(x, PACKED), x)
    (want,) = grads_of(lambda x: x @ WEIGHT.T, x)
    assert_same_bits(got, want)
    got = grads_of(lambda x, b: _ops.r4_matmul(x, PACKED, b), x, bias, which=(0, 1))
    want = grads_of(lambda x, b: mx.addmm(b, x, WEIGHT.T), x, bias, which=(0, 1))
    for a, b in zip(got, want, strict=True):
        assert_same_bits(a, b)


def test_gradient_of_a_vector():
    (got,) = grads_of(lambda x: _ops.r4_matmul(x, PACKED), values(27, K))
    (want,) = grads_of(lambda x: x @ WEIGHT.T, values(27, K))
    assert_same_bits(got, want)


def test_gradient_through_compile():
    x = values(28, 3, K)
    got = mx.compile(mx.grad(lambda x: _ops.r4_matmul(x, PACKED).sum()))(x)
    assert_same_bits(got, mx.grad(lambda x: (x @ WEIGHT.T).sum())(x))


@pytest.mark.parametrize("is_sorted", [False, True])
def test_gradient_of_gather(is_sorted):
    """Several experts for each token, as in a mixture: their gradients are added."""
    rhs = np.random.default_rng(29).integers(0, E, (6, 3))
    rhs = np.sort(rhs, axis=None).reshape(6, 3) if is_sorted else rhs
    x = values(30, 6, 1, 1, K)

    def gather(x):
        return _ops.r4_gather_mm(x, PACKED_EXPERTS, rhs_indices=mx.array(rhs))

    def plainly(x):
        # By hand: MLX would add the gradients of one token in another order.
        dy = values(99, 6, 3, 1, R)
        dx = mx.stack([dy[i] @ EXPERTS[int(e)] for i, e in np.ndenumerate(rhs)])
        dx = dx.reshape(6, 3, 1, 1, K)
        return ((mx.zeros_like(x) + dx[:, 0]) + dx[:, 1]) + dx[:, 2]

    (got,) = grads_of(gather, x)
    assert_same_bits(got, plainly(x))
    _, (tangent,) = mx.jvp(gather, [x], [values(31, *x.shape)])
    assert_same_bits(tangent, gather(values(31, *x.shape)))


def test_jvp_and_vmap():
    _ops.reset_counts()
    x, dx, bias, db = values(32, 3, K), values(33, 3, K), values(34, R), values(35, R)
    _, (got,) = mx.jvp(lambda x: _ops.r4_matmul(x, PACKED), [x], [dx])
    assert_same_bits(got, dx @ WEIGHT.T)
    _, (got,) = mx.jvp(lambda x, b: _ops.r4_matmul(x, PACKED, b), [x, bias], [dx, db])
    assert_same_bits(got, dx @ WEIGHT.T + db)
    for axis in (0, 1):
        x = values(36, 4, 5, K)
        got = mx.vmap(lambda x: _ops.r4_matmul(x, PACKED, bias), axis)(x)
        assert_same_bits(got, mx.vmap(lambda x: mx.addmm(bias, x, WEIGHT.T), axis)(x))
    got = mx.vmap(lambda x: _ops.r4_matmul(x, PACKED), 1)(values(37, K, 6))
    assert_same_bits(got, values(37, K, 6).T @ WEIGHT.T)
    ids = mx.array([[0, 1, 2], [3, 4, 5]])
    for axis in (0, 1):
        got = mx.vmap(lambda i: _ops.r4_rows(PACKED, i), axis)(ids)
        assert_same_bits(got, mx.vmap(lambda i: WEIGHT[i], axis)(ids))
    assert _ops.counts()["rebuild"] == 0
