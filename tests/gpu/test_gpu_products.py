"""Products of packed matrices equal MLX's on the GPU, bit for bit, in true shapes and others."""

import itertools

import gpu_data as data
import mlx.core as mx
import mlx_operands
import pytest
from binade.mlx import _ops
from gpu_running import DRY, assert_same_bits, kernels_of, take_served
from true_models import MODELS, QWEN2_7B, QWEN3_30B, packable_shapes

MS = (1, 2, 3, 16, 64)
TRUE = sorted(
    {
        shape
        for config in (*MODELS.values(), QWEN2_7B, QWEN3_30B)
        for shape in packable_shapes(config)
        # MLX's own BF16 products overflow from 2^31 weights on.
        if len(shape) == 2 and shape[0] * shape[1] < 1 << 31
    }
)
RAGGED_K = (704, 896, 2112, 520, 100, 4, 1, 33, 64, 65, 127, 128, 129, 192, 256, 511, 1537, 16420)
RAGGED_N = (1, 2, 7, 8, 9, 31, 33, 300)
# One block's shared memory holds no x as long as the last.
LONG = [(9, 32768), (3, 65536), (2, 131072 + 4)]
if DRY:
    TRUE = [(96, 256), (40, 384)]
    RAGGED_K, RAGGED_N, LONG = (4, 33, 100, 128), (1, 9), [(2, 4096)]


def kinds_for(shape):
    nweights = shape[0] * shape[1]
    if nweights < 5e6:
        return data.EVERY_KIND
    return data.BITING if nweights < 7e7 else data.ONE_KIND


def compare(x, w, packed, what):
    assert_same_bits(_ops.r4_matmul(x, packed), x @ w.T, what)


@pytest.mark.parametrize("shape", TRUE, ids=str)
def test_true_shapes(shape):
    for kind in kinds_for(shape):
        x, w = data.operands(kind, max(MS), *shape)
        packed = _ops.r4_make(w)
        take_served()
        for row in (0, 1, 17):
            compare(x[row : row + 1], w, packed, f"{shape} {kind} row {row}")
        for m in MS:
            compare(x[:m], w, packed, f"{shape} {kind} M={m}")
        entries = [entry for entry in take_served() if entry[2] == 1]
        assert sum(kernels_of(entries, "matmul").values()) == 4
        bias = data.normal((shape[0],))
        for m in (1, 3):
            want = mx.addmm(bias, x[:m], w.T)
            got = _ops.r4_matmul(x[:m], packed, bias)
            assert_same_bits(got, want, f"{shape} {kind} M={m} bias")
    mx.clear_cache()


@pytest.mark.parametrize("k", RAGGED_K)
@pytest.mark.parametrize("kind", data.EVERY_KIND)
def test_ragged_shapes(kind, k):
    for n in RAGGED_N:
        x, w = data.operands(kind, 3, n, k)
        packed = _ops.r4_make(w)
        for m in (1, 2, 3):
            compare(x[:m], w, packed, f"{kind} M={m} N={n} K={k}")
        compare(x[2], w, packed, f"{kind} 1-D N={n} K={k}")


@pytest.mark.parametrize("shape", LONG, ids=str)
@pytest.mark.parametrize("kind", data.BITING)
def test_long_rows(kind, shape):
    x, w = data.operands(kind, 2, *shape)
    packed = _ops.r4_make(w)
    compare(x[:1], w, packed, f"{kind} {shape}")
    compare(x, w, packed, f"{kind} {shape} M=2")


@pytest.mark.parametrize("generator", mlx_operands.GENERATORS, ids=lambda g: g.__name__)
def test_data_of_the_cpu_tests(generator):
    for n, k in ((64, 704), (33, 100), (8, 3840), (17, 1536), (300, 64), (5, 4)):
        x, w = map(mlx_operands.to_mlx, mlx_operands.operands(generator, 3, n, k))
        packed = _ops.r4_make(w)
        for m in (1, 3):
            compare(x[:m], w, packed, f"{generator.__name__} M={m} N={n} K={k}")


# ---- x in memory


@pytest.mark.parametrize("k", [128, 192, 704, 4096, 100, 4])
@pytest.mark.parametrize("offset", [1, 2, 3, 4, 5, 8])
def test_x_at_an_offset(k, offset):
    """MLX takes other columns to a lane where x is not aligned."""
    x, w = data.operands("paired", 2, 40, k)
    packed = _ops.r4_make(w)
    row = mx.concatenate([data.normal((offset,)), x[0], data.normal((16,))])
    wide = mx.concatenate([data.normal((2, offset)), x, data.normal((2, 16))], axis=1)
    mx.eval(row, wide)
    compare(row[offset : offset + k], w, packed, "1-D")
    compare(row[None, offset : offset + k], w, packed, "2-D")
    compare(row[offset : offset + k].reshape(1, 1, k), w, packed, "3-D")
    compare(wide[1:, offset : offset + k], w, packed, "a row of a wider one")
    compare(wide[:, offset : offset + k], w, packed, "two rows of a wider one")


def views(k):
    return {
        "every second column": data.normal((1, 2 * k))[:, ::2],
        "backwards": data.normal((1, k))[:, ::-1],
        "a column": data.normal((k, 1)).T,
        "a column of many": data.normal((k, 6))[:, 2:3].T,
        "the last of many": data.normal((1, 40, k))[:, -1:],
        "the same value": mx.broadcast_to(data.normal((1, 1)), (1, k)),
        "transposed": data.normal((k, 6)).T,
        "every second row": data.normal((12, k))[::2],
        "the same row": mx.broadcast_to(data.normal((1, k)), (6, k)),
        "axes swapped": data.normal((4, 3, k)).swapaxes(0, 1),
    }


@pytest.mark.parametrize("k", [128, 4096, 70])
@pytest.mark.parametrize("view", views(4))
def test_x_that_is_not_contiguous(view, k):
    _, w = data.operands("paired", 1, 40, k)
    packed = _ops.r4_make(w)
    x = views(k)[view]
    mx.eval(x)
    compare(x, w, packed, view)
    compare(views(k)[view], w, packed, f"{view}, not computed before")
    bias = mx.broadcast_to(data.normal((1,)), (40,))
    assert_same_bits(_ops.r4_matmul(x, packed, bias), mx.addmm(bias, x, w.T), f"{view} bias")


@pytest.mark.parametrize(
    "shape", [(), (1,), (1, 1), (1, 1, 1), (1, 1, 1, 1), (3, 1), (2, 1, 3), (2, 2, 1, 1), (0,)]
)
def test_x_of_any_rank(shape):
    _, w = data.operands("paired", 1, 72, 256)
    packed = _ops.r4_make(w)
    x, bias = data.normal((*shape, 256)), data.normal((72,))
    compare(x, w, packed, str(shape))
    # MLX's addmm of no rows ends the process on CUDA.
    want = mx.addmm(bias, x, w.T) if x.size else mx.zeros((0, 72), mx.bfloat16)
    assert_same_bits(_ops.r4_matmul(x, packed, bias), want, f"{shape} bias")


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16], ids=str)
@pytest.mark.parametrize("m", [1, 3])
def test_x_that_is_not_bf16(m, dtype):
    x, w = data.operands("normal", m, 72, 256)
    x, packed = x.astype(dtype), _ops.r4_make(w)
    got, want = _ops.r4_matmul(x, packed), x @ w.T
    assert got.dtype == want.dtype
    assert mx.array_equal(got, want)


@pytest.mark.parametrize("shapeless", [False, True])
@pytest.mark.parametrize("first", [1, 5])
def test_compile(first, shapeless):
    _, w = data.operands("paired", 1, 72, 256)
    packed, bias = _ops.r4_make(w), data.normal((72,))
    mx.eval(bias)

    def plain(x):
        y = x @ w.T
        return y * 2, mx.sigmoid(y), mx.addmm(bias, x, w.T)

    def ours(x):
        y = _ops.r4_matmul(x, packed)
        return y * 2, mx.sigmoid(y), _ops.r4_matmul(x, packed, bias)

    compiled = mx.compile(ours, shapeless=shapeless)
    for m in (first, 64, 5, 1):
        x = data.normal((m, 256))
        if shapeless and first == 1 and m > 1 and not DRY:
            # The kernel for one row was chosen when the function was traced.
            with pytest.raises(RuntimeError, match="compiled for one row of x"):
                mx.eval(compiled(x))
            continue
        for got, want in zip(compiled(x), mx.compile(plain)(x), strict=True):
            assert_same_bits(got, want, f"M={m}")


def test_a_chain_of_products():
    """Each reads what the one before wrote, whose memory is used again soon."""
    _, w = data.operands("normal", 1, 512, 512)
    packed = _ops.r4_make(w)
    x = y = data.normal((1, 512))
    for _ in range(60):
        x, y = mx.sigmoid(_ops.r4_matmul(x + x, packed)), mx.sigmoid((y + y) @ w.T)
    assert_same_bits(x, y)


def test_weights_may_die_before_they_are_used():
    x, w = data.operands("paired", 1, 512, 4096)
    ys = [_ops.r4_matmul(x, _ops.r4_make(w)) for _ in range(20)]
    for y in ys:
        assert_same_bits(y, x @ w.T)


# ---- One x, several weights

SEVERAL = [
    *[((4096, 1024, 1024), 4096), ((14336, 14336), 4096), ((3072, 1024, 1024), 3072)],
    *[((2112, 2112), 2816), ((4096, 2048, 2048), 2816), ((8192, 1024), 2816)],
    *[((8192, 4096, 32, 32), 4096), ((15360, 15360), 3840)],
    *[((7, 1, 33), 520), ((9, 8), 100), ((5, 5, 5), 4), ((40,), 704), ((33, 64), 2112)],
]
if DRY:
    SEVERAL = SEVERAL[-5:]


@pytest.mark.parametrize(("rows", "k"), SEVERAL, ids=str)
@pytest.mark.parametrize("kind", ["paired", "mixed", "rows of escapes"])
def test_several_weights(kind, rows, k):
    """Weights with bases and escapes of their own."""
    x, _ = data.operands(kind, 5, 1, k)
    weights = [data.operands(kind, 1, n, k, seed)[1] for seed, n in enumerate(rows)]
    packed = [_ops.r4_make(w) for w in weights]
    buffer = mx.concatenate([x[0], x[0], x[0, :1]])
    mx.eval(buffer)
    take_served()
    for place, one in {
        "2-D": x[:1],
        "1-D": x[1],
        "3-D": x[None, 2:3],
        "at an offset": buffer[None, 1 : k + 1],
        "every second": mx.repeat(x[:1], 2, axis=1)[:, ::2],
        "M=2": x[:2],
        "M=5": x,
        "no rows": x[:0],
    }.items():
        ys = _ops.r4_matmuls(one, packed)
        assert len(ys) == len(weights)
        for i, (y, w) in enumerate(zip(ys, weights, strict=True)):
            assert_same_bits(y, one @ w.T, f"{kind} {rows} {k} weight {i}, {place}")
    entries = [entry for entry in take_served() if entry[2] == 1]
    assert sum(kernels_of(entries, "matmul").values()) == 5 * len(rows)


def test_some_of_several_are_used():
    """The others' results are dropped; under mx.compile too."""
    x, w = data.operands("paired", 1, 64, 256)
    packed = [_ops.r4_make(w), _ops.r4_make(w[:40]), _ops.r4_make(w[8:])]
    for i, part in enumerate((w, w[:40], w[8:])):
        assert_same_bits(_ops.r4_matmuls(x, packed)[i], x @ part.T)
        function = mx.compile(lambda x, i=i: _ops.r4_matmuls(x, packed)[i] * 2)
        assert_same_bits(function(x), (x @ part.T) * 2)


# ---- The data bites


@pytest.mark.parametrize("k", [704, 4096])
def test_another_order_is_caught(k):
    x, w = data.operands("paired", 1, 512, k)
    turned = mx.contiguous(w[:, ::-1])
    packed, backwards = _ops.r4_make(w), _ops.r4_make(turned)
    with pytest.raises(AssertionError, match="differ, first at"):
        assert_same_bits(_ops.r4_matmul(x[:, ::-1], backwards), x @ w.T)
    assert_same_bits(_ops.r4_matmul(x[:, ::-1], backwards), x[:, ::-1] @ turned.T)
    compare(x, w, packed, "forwards")


@pytest.mark.skipif(DRY, reason="the order of GPUs")
@pytest.mark.parametrize(("k", "n"), [(4096, 4), (704, 2), (100, 1), (2112, 2), (2816, 4)])
def test_mlx_sums_as_documented(k, n):
    """And with other columns to a lane, or with more rows of x, bits are others."""
    x, w = data.operands("paired", 2, 256, k)
    y = x[:1] @ w.T
    assert_same_bits(data.gemv_order(x[0], w, n).astype(mx.bfloat16)[None], y)
    for other in {1, 2, 4} - {n}:
        with pytest.raises(AssertionError, match="differ, first at"):
            assert_same_bits(data.gemv_order(x[0], w, other).astype(mx.bfloat16)[None], y)
    with pytest.raises(AssertionError, match="differ, first at"):
        assert_same_bits((x @ w.T)[:1], y)


# ---- The weights


SHAPES = [(256, 256), (1, 65536), (65536, 1), (512, 128), (64, 1024), (1024, 65), (4, 128, 130)]


@pytest.mark.parametrize("shape", [*SHAPES, (1, 1), (3, 1000), (2, 3, 5), (0, 8), (8, 0)], ids=str)
def test_weights_come_back(shape):
    """All patterns, NaN with their payloads too."""
    n, k = shape[-2:]
    count = shape[0] if len(shape) == 3 else 1
    for kind in ("all patterns", "any exponents", "rows of escapes", "one in 1000"):
        if 0 in shape:
            w = mx.zeros(shape, mx.bfloat16)
        else:
            w = data.WEIGHTS[kind](count * n, k).reshape(-1).reshape(shape)
        packed = _ops.r4_make(w)
        assert packed.shape == shape
        assert_same_bits(_ops.r4_rebuild(packed), w, f"{kind} {shape}")


@pytest.mark.parametrize(("n", "k"), [(300, 256), (77, 100), (1000, 2816), (5, 4)])
@pytest.mark.parametrize("dtype", [mx.int32, mx.uint32, mx.int64], ids=str)
def test_rows(dtype, n, k):
    for kind in ("all patterns", "rows of escapes", "mixed"):
        w = data.row_by_row(data.WEIGHTS[kind](n, k))
        packed = _ops.r4_make(w)
        mx.random.seed(n)
        ids = mx.random.randint(0, n, (3, 41)).astype(dtype)
        some = [ids, ids.T, ids[0, 0], ids[:0], mx.array([0, n - 1, 0, 0], dtype)]
        if dtype != mx.uint32:
            some += [mx.array([-1, -n, 1 - n, -1], dtype), ids - n]
        for one in some:
            assert_same_bits(_ops.r4_rows(packed, one), mx.take(w, one, axis=0), f"{kind} {n}x{k}")


def test_all_ids():
    n, k = (400, 64) if DRY else (70000, 520)
    w = data.sprinkled(n, k, 0.01)
    assert_same_bits(_ops.r4_rows(_ops.r4_make(w), mx.arange(n)), w)


def test_m_and_n_of_one():
    for n, m in itertools.product((1, 2), repeat=2):
        x, w = data.operands("paired", m, n, 512)
        compare(x, w, _ops.r4_make(w), f"M={m} N={n}")
