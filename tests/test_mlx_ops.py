"""The MLX operations behave as MLX's own: any shape, lazy, under mx.compile, on any stream."""

import resource
import threading

import numpy as np
import pytest

mx = pytest.importorskip("mlx.core")

import binade  # noqa: E402
from binade.mlx import _ops  # noqa: E402
from mlx_operands import (  # noqa: E402
    assert_same_bits,
    pairs,
    random_bits,
    to_mlx,
    values,
)

R, K, E = 44, 70, 5


@pytest.fixture(scope="module")
def weight():
    return to_mlx(pairs(np.random.default_rng(1), 1, R, K)[1])


@pytest.fixture(scope="module")
def packed(weight):
    return _ops.r4_make(weight)


@pytest.fixture(scope="module")
def experts():
    return values(2, E, R, K)


@pytest.fixture(scope="module")
def packed_experts(experts):
    return _ops.r4_make(experts)


@pytest.fixture(autouse=True)
def counts():
    """How often each path ran in this test, as a function."""
    _ops.reset_counts()
    yield lambda: {path: n for path, n in _ops.counts().items() if n}
    _ops.forbid_rebuild(False)


def gather_plainly(x, experts, rhs):
    """Each index's expert times the x of its place; x [..., M, K] and rhs broadcast."""
    rhs = np.array(rhs)
    x = mx.broadcast_to(x, (*np.broadcast_shapes(x.shape[:-2], rhs.shape), *x.shape[-2:]))
    rhs = np.broadcast_to(rhs, x.shape[:-2])
    out = [x[place] @ experts[int(e)].T for place, e in np.ndenumerate(rhs)]
    return mx.stack(out).reshape(*rhs.shape, x.shape[-2], -1)


# ---- Weights


def test_a_weight_tells_its_shape(packed, packed_experts):
    assert (packed.shape, packed.ndim) == ((R, K), 2)
    assert (packed_experts.shape, packed_experts.ndim) == ((E, R, K), 3)
    assert packed.nbytes == sum(array.nbytes for array in packed.arrays)


@pytest.mark.parametrize("shape", [(1, 1), (16, 4), (17, 5), (3, 1000), (2, 3, 5), (1, 40, 64)])
def test_rebuild(shape, counts):
    everything = random_bits(np.random.default_rng(3), shape, 0, 255)
    packed = _ops.r4_make(to_mlx(everything))
    assert_same_bits(_ops.r4_rebuild(packed), to_mlx(everything))
    assert packed.shape == shape
    assert counts() == {"rebuild": 1}


@pytest.mark.parametrize("shape", [(0, 8), (8, 0), (0, 8, 8), (2, 0, 8), (2, 8, 0)])
def test_empty_weights(shape):
    weight = mx.zeros(shape, mx.bfloat16)
    packed = _ops.r4_make(weight)
    assert_same_bits(_ops.r4_rebuild(packed), weight)
    if len(shape) == 2:
        x, bias = values(4, 3, shape[1]), values(5, shape[0])
        assert_same_bits(_ops.r4_matmul(x, packed), x @ weight.T)
        assert_same_bits(_ops.r4_matmul(x, packed, bias), mx.addmm(bias, x, weight.T))


def test_only_bf16_matrices_can_be_packed():
    for wrong in (mx.zeros((4, 4)), mx.zeros(4, mx.bfloat16), mx.zeros((1, 1, 4, 4), mx.bfloat16)):
        with pytest.raises(binade.UsageError, match="two or three dimensions"):
            _ops.r4_make(wrong)


# ---- Products


@pytest.mark.parametrize("shape", [(K,), (1, K), (7, K), (2, 3, K), (2, 1, 3, K), (1, 1, 1, 1, K)])
def test_x_of_any_rank(packed, weight, shape, counts):
    x, bias = values(6, *shape), values(7, R)
    assert_same_bits(_ops.r4_matmul(x, packed), x @ weight.T)
    assert_same_bits(_ops.r4_matmul(x, packed, bias), mx.addmm(bias, x, weight.T))
    assert counts() == {"matmul": 2}


@pytest.mark.parametrize("shape", [(0, K), (2, 0, K), (0, 3, K)])
def test_no_rows(packed, weight, shape):
    x = mx.zeros(shape, mx.bfloat16)
    assert_same_bits(_ops.r4_matmul(x, packed), x @ weight.T)


VIEWS = {
    "transposed": lambda: values(8, K, 6).T,
    "every second row": lambda: values(8, 12, K)[::2],
    "every second column": lambda: values(8, 6, 2 * K)[:, ::2],
    "backwards": lambda: values(8, 6, K)[:, ::-1],
    "columns of a wider one": lambda: values(8, 6, K + 9)[:, 5 : K + 5],
    "last row of a large one": lambda: values(8, 1, 400, K)[:, -1:],
    "the same row again": lambda: mx.broadcast_to(values(8, 1, K), (6, K)),
    "axes swapped": lambda: values(8, 4, 3, K).swapaxes(0, 1),
}


@pytest.mark.parametrize("view", VIEWS)
def test_x_that_is_not_contiguous(packed, weight, view):
    x = VIEWS[view]()
    assert_same_bits(_ops.r4_matmul(x, packed), x @ weight.T)
    bias = mx.broadcast_to(values(9, 1), (R,))
    assert_same_bits(_ops.r4_matmul(x, packed, bias), mx.addmm(bias, x, weight.T))


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.int32], ids=str)
def test_x_that_is_not_bf16(packed, weight, dtype, counts):
    x, bias = values(10, 3, K).astype(dtype), values(11, R).astype(mx.float32)
    for got, want in [
        (_ops.r4_matmul(x, packed), x @ weight.T),
        (_ops.r4_matmul(x, packed, bias), mx.addmm(bias, x, weight.T)),
        (
            _ops.r4_matmul(values(10, 3, K), packed, bias),
            mx.addmm(bias, values(10, 3, K), weight.T),
        ),
    ]:
        assert got.dtype == want.dtype
        assert mx.array_equal(got, want)
    assert counts() == {"rebuild": 3}


# ---- Rows


@pytest.mark.parametrize("dtype", [mx.int32, mx.int64, mx.uint32, mx.uint8, mx.int16], ids=str)
def test_rows(packed, weight, dtype, counts):
    ids = mx.array([[0, 1, R - 1], [17, 17, 16]], dtype)
    assert_same_bits(_ops.r4_rows(packed, ids), weight[ids])
    assert_same_bits(_ops.r4_rows(packed, ids.T), weight[ids.T])
    assert_same_bits(_ops.r4_rows(packed, ids[0, 2]), weight[ids[0, 2]])
    empty = mx.zeros((2, 0), dtype)
    assert _ops.r4_rows(packed, empty).shape == (2, 0, K)
    assert counts() == {"rows": 3}


def test_rows_from_the_end(packed, weight):
    ids = mx.array([-1, -R, 0])
    assert_same_bits(_ops.r4_rows(packed, ids), weight[ids])


# ---- Gather


def test_gather_of_every_kind(packed_experts, experts, counts):
    rng = np.random.default_rng(12)
    x = values(13, 2, 6, 1, 1, K)
    rhs = rng.integers(0, E, (2, 6, 3))
    got = _ops.r4_gather_mm(x, packed_experts, rhs_indices=mx.array(rhs))
    assert_same_bits(got, gather_plainly(x, experts, rhs))

    x, rhs = values(14, 20, 4, K), np.sort(rng.integers(0, E, 20))
    for is_sorted in (True, False):
        got = _ops.r4_gather_mm(
            x, packed_experts, rhs_indices=mx.array(rhs), sorted_indices=is_sorted
        )
        assert_same_bits(got, gather_plainly(x, experts, rhs))

    lhs, rhs = rng.integers(0, 20, (3, 7)), rng.integers(0, E, (3, 1))
    got = _ops.r4_gather_mm(x, packed_experts, mx.array(lhs), mx.array(rhs))
    assert_same_bits(got, gather_plainly(x[mx.array(lhs)], experts, rhs))

    x, rhs = values(15, 6, 20, K).swapaxes(1, 0)[::2, :, :], rng.integers(0, E, 10)
    got = _ops.r4_gather_mm(x, packed_experts, rhs_indices=mx.array(rhs, mx.uint32))
    assert_same_bits(got, gather_plainly(x, experts, rhs))
    assert counts() == {"gather_mm": 5}


def test_gather_of_nothing(packed_experts):
    nothing = mx.zeros((0,), mx.int32)
    got = _ops.r4_gather_mm(mx.zeros((0, 1, K), mx.bfloat16), packed_experts, rhs_indices=nothing)
    assert got.shape == (0, 1, R)
    got = _ops.r4_gather_mm(
        mx.zeros((3, 0, K), mx.bfloat16), packed_experts, rhs_indices=mx.array([0, 1, 2])
    )
    assert got.shape == (3, 0, R)


def test_gather_from_a_matrix(packed, weight):
    x = values(16, 3, 2, K)
    got = _ops.r4_gather_mm(x, packed, rhs_indices=mx.array([0, 0, 0]))
    assert_same_bits(got, x @ weight.T)


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16], ids=str)
def test_gather_with_x_that_is_not_bf16(packed_experts, experts, dtype, counts):
    x, rhs = values(17, 9, 1, K).astype(dtype), mx.array([0, 4, 4, 2, 1, 0, 3, 3, 3])
    got = _ops.r4_gather_mm(x, packed_experts, rhs_indices=rhs)
    want = mx.gather_mm(x, experts.swapaxes(-1, -2), rhs_indices=rhs)
    assert got.dtype == want.dtype
    assert mx.array_equal(got, want)
    assert counts() == {"rebuild": 1}


# ---- Laziness, compile, streams


def test_nothing_is_computed_before_it_is_needed(packed, packed_experts, counts):
    out_of_range = _ops.r4_rows(packed, mx.array([R]))  # would fail
    y = _ops.r4_matmul(out_of_range, packed)
    y = _ops.r4_gather_mm(out_of_range[None], packed_experts, rhs_indices=mx.array([0]))
    assert y.shape == (1, 1, R)
    _ops.r4_rebuild(packed)
    assert counts() == {}


@pytest.mark.parametrize("shapeless", [False, True])
def test_compile(packed, weight, packed_experts, experts, shapeless, counts):
    bias = values(18, R)

    @mx.compile
    def plain(x, ids):
        return mx.sigmoid(x @ weight.T) * 2, mx.addmm(bias, x, weight.T), weight[ids]

    mx.eval(bias)  # under shapeless a constant must not be a graph

    def with_kernels(x, ids):
        y = mx.sigmoid(_ops.r4_matmul(x, packed)) * 2
        return y, _ops.r4_matmul(x, packed, bias), _ops.r4_rows(packed, ids)

    compiled = mx.compile(with_kernels, shapeless=shapeless)
    for shape in [(1, K), (5, K), (64, K), (1, K)]:
        x, ids = values(19, *shape), mx.arange(shape[0]) % R
        for got, want in zip(compiled(x, ids), plain(x, ids), strict=True):
            assert_same_bits(got, want)
    _ops.forbid_rebuild(True)

    gather = mx.compile(
        lambda x, lhs, rhs: _ops.r4_gather_mm(x, packed_experts, lhs, rhs), shapeless=shapeless
    )
    for n in (3, 8, 3):
        x, rhs = values(20, n, 1, K), mx.arange(n) % E
        got = gather(x, mx.arange(n), rhs)
        assert_same_bits(got, gather_plainly(x, experts, rhs))
    assert counts() == {"matmul": 8, "rows": 4, "gather_mm": 3}


def test_compile_computes_equal_things_once(packed, weight, counts):
    bias, ids = values(18, R), mx.array([1, 2])

    def twice(x, product, biased, rows):
        return (
            mx.concatenate([product(x), product(x)]),
            mx.concatenate([biased(x), biased(x)]),
            mx.concatenate([rows(), rows()]),
        )

    def with_kernels(x):
        return twice(
            x,
            lambda x: _ops.r4_matmul(x, packed),
            lambda x: _ops.r4_matmul(x, packed, bias),
            lambda: _ops.r4_rows(packed, ids),
        )

    def plain(x):
        return twice(
            x, lambda x: x @ weight.T, lambda x: mx.addmm(bias, x, weight.T), lambda: weight[ids]
        )

    x = values(21, 2, K)
    for got, want in zip(mx.compile(with_kernels)(x), plain(x), strict=True):
        assert_same_bits(got, want)
    assert counts() == {"matmul": 2, "rows": 1}


def test_weights_may_die_before_they_are_used(weight):
    x = values(22, 2, K)
    y = _ops.r4_matmul(x, _ops.r4_make(weight))
    assert_same_bits(y, x @ weight.T)


def test_streams(packed, weight, counts):
    x = values(23, 4, K)
    streams = [mx.new_stream(mx.cpu) for _ in range(2)]
    want = x @ weight.T
    first = [_ops.r4_matmul(x, packed, stream=s) for s in streams]
    # Across streams: what one made is what the other works on.
    back = _ops.r4_make(weight.T)
    chained = _ops.r4_matmul(first[0], back, stream=streams[1])
    assert_same_bits(chained, want @ weight)
    for y in first:
        assert_same_bits(y, want)
    with mx.stream(streams[0]):
        assert_same_bits(_ops.r4_matmul(x, packed), want)
        assert_same_bits(_ops.r4_rows(packed, mx.array([3])), weight[mx.array([3])])
    assert_same_bits(_ops.r4_matmul(x, packed, stream=mx.cpu), want)
    assert counts() == {"matmul": 5, "rows": 1}


def test_python_threads(packed, weight):
    """Each thread has its own stream; the kernels' threads serve one at a time."""
    x = values(24, 6, K)
    want = np.array((x @ weight.T).view(mx.uint16))
    wrong = []

    def work():
        stream = mx.new_stream(mx.cpu)
        for _ in range(50):
            y = _ops.r4_matmul(x, packed, stream=stream)
            got = np.array(y.view(mx.uint16, stream=stream))
            if not np.array_equal(got, want):
                wrong.append(got)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_memory_of_x_is_not_used_again_too_early(packed, weight):
    """x dies at once; what is computed next takes its memory if it may."""
    for seed in range(20):
        x = values(seed, 5, K)
        y = _ops.r4_matmul(x + x, packed)
        z = mx.exp(x + x) * 3
        del x
        mx.eval(y, z)
        x = values(seed, 5, K)
        assert_same_bits(y, (x + x) @ weight.T)


# ---- Failures


def test_wrong_shapes(packed, packed_experts):
    x = values(38, 2, K)
    ids = mx.array([0])
    for call, text in [
        (lambda: _ops.r4_matmul(values(38, 2, K - 1), packed), r"\(2,69\).*\(44,70\)"),
        (lambda: _ops.r4_matmul(mx.array(1.0, mx.bfloat16), packed), "last dimensions"),
        (lambda: _ops.r4_matmul(x, packed_experts), "stack of experts"),
        (lambda: _ops.r4_matmul(x, packed, values(39, R + 1)), "bias"),
        (lambda: _ops.r4_matmul(x, packed, values(39, 1, R)), "bias"),
        (lambda: _ops.r4_rows(packed_experts, ids), "stack of experts"),
        (lambda: _ops.r4_rows(packed, mx.array([0.5])), "integers"),
        (lambda: _ops.r4_gather_mm(values(38, K), packed_experts, rhs_indices=ids), "two dim"),
        (lambda: _ops.r4_gather_mm(x, packed_experts, rhs_indices=mx.array([0.5])), "integers"),
    ]:
        with pytest.raises(ValueError, match=text):
            call()


@pytest.mark.parametrize("bad", [R, -R - 1, 1 << 31])
def test_rows_out_of_range(packed, bad):
    with pytest.raises(RuntimeError, match=rf"Index {bad} is out of range for {R}"):
        mx.eval(_ops.r4_rows(packed, mx.array([0, bad], mx.int64)))
    # The stream goes on.
    assert mx.array([1]).item() == 1


@pytest.mark.parametrize(("lhs", "rhs"), [(0, E), (0, -1), (2, 0)])
def test_gather_out_of_range(packed_experts, lhs, rhs):
    x = values(40, 2, 1, K)
    with pytest.raises(RuntimeError, match="out of range"):
        mx.eval(_ops.r4_gather_mm(x, packed_experts, mx.array([lhs]), mx.array([rhs])))

    def evaluate_later():
        mx.async_eval(_ops.r4_gather_mm(x, packed_experts, mx.array([lhs]), mx.array([rhs])))
        mx.synchronize()

    with pytest.raises(RuntimeError, match="out of range"):
        evaluate_later()


def test_rebuilding_can_be_forbidden(packed, packed_experts, counts):
    _ops.forbid_rebuild(True)
    x = values(41, 2, K).astype(mx.float32)
    for call in (
        lambda: _ops.r4_rebuild(packed),
        lambda: _ops.r4_matmul(x, packed),
        lambda: _ops.r4_gather_mm(x[:, None], packed_experts, rhs_indices=mx.array([0, 1])),
        lambda: mx.grad(lambda x: _ops.r4_matmul(x, packed).sum())(values(41, 2, K)),
        lambda: mx.grad(
            lambda x: _ops.r4_gather_mm(x, packed_experts, rhs_indices=mx.array([0])).sum()
        )(values(41, 1, 2, K)),
    ):
        with pytest.raises(RuntimeError, match="forbidden"):
            call()
    _ops.forbid_rebuild(False)
    mx.eval(_ops.r4_matmul(x, packed))
    assert counts() == {"rebuild": 1}


def test_failures_have_documented_types(tmp_path):
    with pytest.raises(binade.UsageError, match="no such directory"):
        _ops.Checkpoint(str(tmp_path / "absent"))
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 64)
    with pytest.raises(binade.DataError, match=r"model\.safetensors"):
        _ops.Checkpoint(str(tmp_path))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with pytest.raises(binade.FileError, match="Too many open files"):
            _ops.Checkpoint(str(tmp_path))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
