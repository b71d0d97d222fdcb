"""All that src/mlx does on Metal, with the emulator in the place of an Apple GPU: packed weights
are loaded and multiplied by launches as MLX would be asked for them."""

import os
import subprocess

import mlx.core as mx
import numpy as np
import pytest
from agreement import Variant
from binade.mlx import _ops, r4
from emulated_models import ByMlx, bits_of, load, logits, to_mlx
from mlx_lm.models.cache import make_prompt_cache
from mlx_operands import assert_same_bits, normal_bits
from r4_comparing import M4, bias_of, mlx, multiply_by_mlx
from r4_kernels import Form, Kernels, arrays, table, texts
from r4_products import ANY_SIZE
from sources import ROOT

ARCHITECTURE = "applegpu_g16g"  # M4 above
LAUNCHED = []
KERNELS = Kernels(fma=True)


def emulate(kernel, values, grid, threadgroup, inputs, shapes):
    """A launch as the operations ask for it."""
    entry = table()[kernel]
    listed = [name for name, _, _ in arrays(entry.inputs)]
    given = {name: as_numpy(a) for name, a in zip(listed, inputs, strict=True)}
    parameters = texts(entry.parameters)
    template = {p: bool(v) if p == "BIAS" else v for p, v in zip(parameters, values, strict=True)}
    small = tuple(n for n in given if n in ANY_SIZE and given[n].size < 8)
    dtypes = {"ids": given["ids"].dtype.name} if "ids" in given else {}
    form = Form(kernel, small, dtypes, **template)
    named = {name: shape for (name, _), shape in zip(form.outputs, shapes, strict=True)}
    made, _ = KERNELS.launch(form, given, named, grid, threadgroup)
    LAUNCHED.append(kernel)
    return [from_numpy(made[name], dtype) for name, dtype in form.outputs]


def as_numpy(array):
    return np.array(array.view(mx.uint16) if array.dtype == mx.bfloat16 else array)


def from_numpy(array, dtype):
    return mx.array(array).view(mx.bfloat16) if dtype == "bfloat16" else mx.array(array)


@pytest.fixture
def metal():
    _ops.set_metal_launcher(ARCHITECTURE, emulate)
    _ops.forbid_rebuild(True)
    LAUNCHED.clear()
    yield
    _ops.forbid_rebuild(False)
    _ops.set_metal_launcher("", None)


def draw(shape, seed, scale=1):
    return normal_bits(np.random.default_rng(seed), shape, scale)


def test_the_build_holds_the_files():
    """What MLX would compile is what the emulator compiles."""
    texts_of_build = _ops.device_sources()
    files = {
        str(path.relative_to(ROOT / "src")): path.read_text()
        for pattern in ("metal/*.metal", "metal/bodies/*.metal", "cuda/r4_gpu_layout.h")
        for path in (ROOT / "src").glob(pattern)
    }
    assert len(files) > 40
    assert {name: texts_of_build[name] for name in files} == files


@pytest.mark.parametrize(
    ("m", "n", "k"),
    [
        *[
            (1, 72, 256),
            (1, 33, 100),
            (1, 40, 48),
            (1, 9, 2080),
            (2, 72, 256),
            (5, 33, 104),
        ],
        *[(15, 40, 512), (16, 72, 256), (33, 40, 100), (17, 20, 4096)],
    ],
)
def test_products(metal, m, n, k):
    x, w = draw((m, k), 1), draw((n, k), 2, 0.05)
    packed = _ops.r4_make(to_mlx(w))
    assert packed.device == "metal"
    assert_same_bits(
        _ops.r4_matmul(to_mlx(x), packed), to_mlx(multiply_by_mlx(x, w, Variant(), M4))
    )
    kernel, _ = _ops.path(packed, m)
    assert kernel != "rebuild"
    if n >= 8:
        got = _ops.r4_matmul(to_mlx(x), packed, to_mlx(bias_of(n)))
        want = multiply_by_mlx(x, w, Variant(), M4, bias=True)
        assert_same_bits(got, to_mlx(want))


def test_several_weights_share_a_launch(metal):
    x, ws = draw((1, 1, 256), 1), [draw((n, 256), n, 0.05) for n in (40, 24, 17)]
    packed = [_ops.r4_make(to_mlx(w)) for w in ws]
    LAUNCHED.clear()
    got = _ops.r4_matmuls(to_mlx(x), packed)
    assert LAUNCHED == ["r4_matvec_3"]
    for y, w in zip(got, ws, strict=True):
        assert_same_bits(y[0], to_mlx(multiply_by_mlx(x[0], w, Variant(), M4)))


@pytest.mark.parametrize("tokens", [1, 3])
def test_experts(metal, tokens):
    both = draw((4, 48, 128), 3, 0.05)  # gates, then ups
    x, chosen = (
        draw((1, tokens, 1, 1, 128), 4),
        np.arange(tokens * 2).reshape(1, tokens, 2) * 3 % 4,
    )
    whole = _ops.r4_make(to_mlx(both))
    got = _ops.r4_gather_mm(to_mlx(x), whole, rhs_indices=mx.array(chosen))
    rows = x.reshape(tokens, 128).repeat(2, axis=0)
    experts = chosen.reshape(-1).astype(np.uint32)
    want = mlx(Variant()).gather_mv(rows, both, np.arange(len(rows)), experts)
    assert_same_bits(got.reshape(-1, 48), to_mlx(want))
    assert "r4_gather_1" in LAUNCHED


def test_sorted_experts(metal):
    w, n = draw((4, 40, 128), 3, 0.05), 70
    x, experts = draw((n, 1, 128), 4), np.sort(np.arange(n, dtype=np.uint32) % 4)
    packed = _ops.r4_make(to_mlx(w))
    got = _ops.r4_gather_mm(to_mlx(x), packed, rhs_indices=mx.array(experts), sorted_indices=True)
    want = mlx(Variant()).gather_rhs(x.reshape(n, 128), w, experts)
    assert_same_bits(got.reshape(n, 40), to_mlx(want))
    assert "r4_gemm_experts_1" in LAUNCHED


def test_rows_and_rebuilding(metal):
    _ops.forbid_rebuild(False)
    w = draw((1, 1, 37 * 130), 5).reshape(37, 130)
    w[3] = np.arange(130) * 500  # escapes
    packed, ids = _ops.r4_make(to_mlx(w)), np.array([[0, 36, -1], [5, 3, 3]])
    assert_same_bits(_ops.r4_rebuild(packed), to_mlx(w))
    for dtype in (mx.int32, mx.int64):
        got = _ops.r4_rows(packed, mx.array(ids).astype(dtype))
        assert_same_bits(got, to_mlx(w[ids]))


@pytest.mark.parametrize("family", ["llama", "gemma4_moe"])
@pytest.mark.parametrize("pack_format", [1, 2])
def test_models(metal, tmp_path, family, pack_format):
    """A checkpoint is packed and loaded; its logits are those of MLX's kernels."""
    prompt = [(7 * i * i + 31 * i + 5) % 600 for i in range(33)]
    _ops.set_metal_launcher("", None)
    want = logits(load(family, tmp_path), ByMlx(), prompt, 6)
    _ops.set_metal_launcher(ARCHITECTURE, emulate)
    out = tmp_path / "packed"
    command = [os.environ["BINADE_BIN"], "pack", tmp_path / family, "--out", out, "-q"]
    subprocess.run([*command, "--format", str(pack_format)], check=True)
    model, _, _ = r4.load(out)
    cache = make_prompt_cache(model)
    got = [bits_of(model(mx.array([tokens]), cache=cache)) for tokens in (prompt, [6])]
    for a, b in zip(got, want, strict=True):
        assert np.array_equal(a, b)
    names = {"rice": 2, "fixed": 1}
    for name, of in names.items():
        assert (f"r4_from_{name}_2" in LAUNCHED) == (of == pack_format)
    assert "r4_rebuild" not in LAUNCHED
    assert any(kernel.startswith("r4_gemm") for kernel in LAUNCHED)
    assert any(kernel.startswith("r4_matvec") for kernel in LAUNCHED)


K = 104


def cut(a, nrows, ncols):
    made = mx.contiguous(a[:nrows, :ncols])
    mx.eval(made)
    return made


LYING = {
    "rows": lambda a: cut(a, 6, K),
    "computed": lambda a: cut(a, 6, K) * mx.array([2], mx.bfloat16) + cut(a, 1, K),
    "attention": lambda a: cut(a, 6, K).reshape(1, 2, 6, 52).transpose(0, 2, 1, 3).reshape(6, K),
    "norm": lambda a: mx.fast.rms_norm(cut(a, 6, K), None, 1e-5),
    "halves": lambda a: mx.multiply(*mx.split(cut(a, 6, 2 * K), 2, axis=-1)),
    "an inner row": lambda a: mx.abs(cut(a, 12, K).reshape(1, 6, 2, K)[:, :, 1]),
}
LYING_OTHERWISE = {
    "transposed": lambda a: cut(a, K, 6).T,
    "transposed 3-D": lambda a: cut(a, K, 6)[None].transpose(0, 2, 1),
    "of a transposed one": lambda a: mx.abs(cut(a, K, 6).T) * 2,
    "half of a transposed one": lambda a: mx.abs(cut(a, 2 * K, 6).T[:, :K]),
    "transposed, evaluated": lambda a: mx.eval(b := cut(a, K, 6).T) or b,
    "columns": lambda a: a[:6, 1 : K + 1],
    "columns, evaluated": lambda a: mx.eval(b := a[:6, 8 : K + 8]) or b,
    "columns as another dtype": lambda a: a.view(mx.uint16)[:6, 1 : K + 1].view(mx.bfloat16),
    "at an odd place": lambda a: mx.abs(a.reshape(-1)[1 : 6 * K + 1]).reshape(6, K),
    "repeated": lambda a: mx.broadcast_to(cut(a, 1, K), (6, K)),
}


@pytest.mark.parametrize("lying", [*LYING, *LYING_OTHERWISE])
def test_rows_that_lie_otherwise_are_rebuilt(metal, lying):
    """MLX looks at how several rows lie before it chooses a kernel."""
    _ops.forbid_rebuild(False)
    a, w = to_mlx(draw((2 * K, 2 * K), 1)), to_mlx(draw((40, K), 2, 0.05))
    packed = _ops.r4_make(w)
    LAUNCHED.clear()
    mx.eval(_ops.r4_matmul((LYING | LYING_OTHERWISE)[lying](a), packed))
    kernel = "r4_rebuild" if lying in LYING_OTHERWISE else "r4_wide_1"
    assert [kernel] == LAUNCHED


def test_gradients_are_mlxs(metal):
    """What is traced is rebuilt, so that MLX differentiates it."""
    _ops.forbid_rebuild(False)
    w, x = draw((40, 128), 2, 0.05), to_mlx(draw((3, 128), 1))
    packed = _ops.r4_make(to_mlx(w))
    ours = mx.grad(lambda a: mx.sum(_ops.r4_matmul(a, packed)))(x)
    plain = mx.grad(lambda a: mx.sum(a @ to_mlx(w).T))(x)
    assert_same_bits(ours, plain)
