"""Modules of mlx-lm that are rewired for GPUs: which are known, and that they compute the same.

What GPUs compute in one launch is made here of MLX's operations, so that the rewiring is tested
where there is no GPU.
"""

import importlib

import pytest

mx = pytest.importorskip("mlx.core")

import mlx.nn as nn  # noqa: E402
import mlx_running as run  # noqa: E402
from binade.mlx import _ops, fusion, modules, r4  # noqa: E402
from mlx_lm.models import llama  # noqa: E402
from mlx_lm.models.activations import swiglu  # noqa: E402
from mlx_lm.models.cache import make_prompt_cache  # noqa: E402
from mlx_lm.models.gemma4_text import GeGLU, geglu  # noqa: E402
from mlx_lm.models.switch_layers import SwiGLU, SwitchGLU  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(scope="module", autouse=True)
def _files():
    yield
    run.forget_all()


# ---- Which code is known

BLOCKS = ["llama.TransformerBlock", "qwen2.TransformerBlock", "qwen3.TransformerBlock"]
REPLACED = {
    fusion._Block: [*BLOCKS, "qwen3_moe.Qwen3MoeDecoderLayer", "phi3.TransformerBlock"],
    fusion._HybridBlock: ["qwen3_5.DecoderLayer", "qwen3_next.Qwen3NextDecoderLayer"],
    fusion._Attention: ["llama.Attention", "qwen2.Attention", "glm4.Glm4Attention"],
    fusion._NormedAttention: ["qwen3.Attention", "qwen3_moe.Attention"],
}
# Sliding caches, gates or norms elsewhere: these are left alone.
LEFT_ALONE = [
    *("gemma4_text.Attention", "gemma4_text.DecoderLayer", "glm4.Glm4DecoderLayer"),
    *("phi3.Attention", "phi3.MLP", "glm4.Glm4MLP", "llama.LlamaModel"),
    *("qwen3_next.Qwen3NextAttention", "qwen3_5.GatedDeltaNet", "gpt_oss.SwiGLU"),
]


def class_of(name):
    module, kind = name.split(".")
    return getattr(importlib.import_module(f"mlx_lm.models.{module}"), kind)


def known_as(kind):
    return fusion._read_mlp(kind) or fusion._REPLACED.get(fusion._calls(kind))


@pytest.mark.parametrize(("mixin", "name"), [(m, n) for m in REPLACED for n in REPLACED[m]])
def test_layers_that_are_known(mixin, name):
    assert known_as(class_of(name)) is mixin


@pytest.mark.parametrize("module", ["llama", "qwen2", "qwen3", "qwen3_moe", "qwen3_next"])
def test_mlps_that_are_known(module):
    (name,) = {n for n in ("MLP", "Qwen3NextMLP") if hasattr(class_of_module(module), n)}
    assert known_as(class_of(f"{module}.{name}")) is swiglu


def class_of_module(module):
    return importlib.import_module(f"mlx_lm.models.{module}")


def test_the_mlp_of_gemma():
    assert known_as(class_of("gemma4_text.MLP")) is geglu


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_layers_that_are_left_alone(name):
    assert known_as(class_of(name)) is None


@pytest.mark.parametrize(("kind", "function"), [(SwiGLU, swiglu), (GeGLU, geglu)])
def test_activations_of_experts(kind, function):
    module = SwitchGLU(8, 8, 2, activation=kind())
    fusion._replace_activation(module)
    assert isinstance(module.activation, fusion._SwitchActivation)
    assert module.activation._fused._activation is function


# ---- Code that is not known


class AnotherMLP(nn.Module):
    def __call__(self, x):
        return self.down_proj(swiglu(self.up_proj(x), self.gate_proj(x)))


class ScaledMLP(nn.Module):
    def __call__(self, x):
        return self.down_proj(swiglu(self.gate_proj(x), self.up_proj(x))) * 2


class LongerMLP(nn.Module):
    def __call__(self, x):
        x = x + 1
        return self.down_proj(swiglu(self.gate_proj(x), self.up_proj(x)))


class AnotherBlock(nn.Module):
    def __call__(self, x, mask=None, cache=None):
        r = self.self_attn(self.input_layernorm(x), mask, cache)
        h = x + r
        r = self.mlp(self.post_attention_layernorm(x))
        return h + r


class Inheriting(llama.MLP):
    """What its other methods do is not known."""


class AnotherActivation(nn.Module):
    def __call__(self, x, gate):
        return swiglu(x, gate)


def one_more(gate, x):
    return nn.silu(gate) * x + 1


def product_of_both(gate, x):
    return gate * x


def other_side(gate, x):
    return x * nn.silu(gate)


def not_of_the_gate(gate, x):
    return nn.silu(x) * x


def more_than_x(gate, x):
    return nn.silu(gate) * (x + 1)


def with_two(gate, x):
    return nn.leaky_relu(gate, 0.3) * x


def with_keyword(gate, x):
    return nn.leaky_relu(gate, negative_slope=0.3) * x


def added(gate, x):
    return nn.silu(gate) + x


def other_names(x, gate):
    return nn.silu(gate) * x


def of_all_gates(gate, x):
    return nn.softmax(gate) * x


def in_two_steps(gate, x):
    gate = gate + 1
    return nn.silu(gate) * x


class OneMoreMLP(nn.Module):
    def __call__(self, x):
        return self.down_proj(one_more(self.gate_proj(x), self.up_proj(x)))


class OneMoreActivation(nn.Module):
    def __call__(self, x, gate):
        return one_more(gate, x)


@pytest.mark.parametrize(
    "kind", [AnotherMLP, ScaledMLP, LongerMLP, AnotherBlock, Inheriting, OneMoreMLP, nn.Linear]
)
def test_code_that_is_not_known(kind):
    assert known_as(kind) is None


@pytest.mark.parametrize("kind", [AnotherActivation, OneMoreActivation])
def test_activations_that_are_not_known(kind):
    module = SwitchGLU(8, 8, 2, activation=kind())
    before = module.activation
    fusion._replace_activation(module)
    assert module.activation is before


@pytest.mark.parametrize(
    "function",
    [
        *(one_more, product_of_both, not_of_the_gate, more_than_x, with_two, with_keyword, added),
        *(other_side, other_names, in_two_steps, of_all_gates, nn.silu, mx.multiply, nn.SiLU()),
        None,
        lambda gate, x: nn.silu(gate) * x,
    ],
)
def test_what_is_no_product(function):
    assert not fusion._is_product(function)


def test_code_without_source():
    """Such as that of an interactive session; and a call that is no function."""
    known = {"nn": nn, "swiglu": swiglu}
    code = "class MLP(nn.Module):\n    def __call__(self, x):\n        return self.down_proj(x)\n"
    exec(code, known)
    assert fusion._calls(known["MLP"]) == ""
    assert fusion._calls(type("Odd", (nn.Module,), {"__call__": len})) == ""
    assert known_as(known["MLP"]) is None


# ---- The same bits

FAMILIES = {
    "llama": {"_Block", "_Attention", "_GatedMLP"},
    "llama_biases": {"_Block", "_Attention", "_GatedMLP"},
    "qwen2": {"_Block", "_Attention", "_GatedMLP"},
    "qwen3": {"_Block", "_NormedAttention", "_GatedMLP"},
    "qwen3_moe": {"_Block", "_NormedAttention", "_SwitchActivation"},
    "qwen3_5": {"_HybridBlock", "_GatedMLP"},
    "gemma4_e": {"_GatedMLP"},
    "gemma4_moe": {"_GatedMLP", "_SwitchActivation"},
    "glm4": {"_Attention"},
}


@pytest.fixture
def launches(monkeypatch):
    """fuse() as on a GPU; what is asked of its launches is made of MLX's operations and counted."""
    counts = {"add": 0, "gated": 0}

    def fuse_add(residual, product):
        counts["add"] += 1
        return residual + product

    def fuse_gated(gate, up, act):
        counts["gated"] += 1
        return act[gate.view(mx.uint16)] * up

    monkeypatch.setattr(_ops, "fuse_add", fuse_add)
    monkeypatch.setattr(_ops, "fuse_gated", fuse_gated)
    kinds = (modules.R4Linear, modules.R4SwitchLinear)
    monkeypatch.setattr(fusion, "_is_on_gpu", lambda layer: isinstance(layer, kinds))
    return counts


def names_of_kinds(model):
    """Of each module's class and those it is made of."""
    return {kind.__name__ for module in model.modules() for kind in type(module).__mro__}


def steps(model):
    """Logits with a cache, prompt and tokens; without one; of one token; of a batch."""
    prompt = mx.array([run.prompt_of(17), run.prompt_of(17, 1)])
    for batch in (prompt[:1], prompt):
        cache = make_prompt_cache(model)
        yield model(batch[:, :12], cache=cache)
        for i in range(12, 17):
            yield model(batch[:, i : i + 1], cache=cache)
        yield model(batch)
        yield model(batch[:, :1])


@pytest.mark.parametrize("served", [True, False])
@pytest.mark.parametrize("name", FAMILIES)
def test_models(name, served, launches, monkeypatch):
    """Also where no launch serves what is asked."""
    model = r4.load(run.case(name).packed)[0]
    assert FAMILIES[name] <= names_of_kinds(model)
    if not served:
        monkeypatch.setattr(_ops, "fuse_add", lambda *_: None)
        monkeypatch.setattr(_ops, "fuse_gated", lambda *_: None)
    wants = list(steps(run.reference(name)[0]))
    run.assert_lively(wants[0])
    for got, want in zip(steps(model), wants, strict=True):
        run.assert_same_bits(got, want)
    blocks = {"_Block", "_HybridBlock"} & FAMILIES[name]
    gated = {"_GatedMLP", "_SwitchActivation"} & FAMILIES[name]
    assert (launches["add"] > 0) == (served and bool(blocks))
    assert (launches["gated"] > 0) == (served and bool(gated))


@pytest.mark.usefixtures("launches")
def test_modules_stay_what_they_are():
    model = r4.load(run.case("llama").packed)[0]
    for layer in model.model.layers:
        assert isinstance(layer, llama.TransformerBlock)
        assert isinstance(layer.self_attn, llama.Attention)
        assert isinstance(layer.mlp, llama.MLP)
        assert type(layer).__name__ == "TransformerBlock"
        assert type(layer).__module__ == llama.__name__
    kinds = {type(layer) for layer in model.model.layers}
    assert len(kinds) == 1
    assert llama.TransformerBlock.__call__ is not next(iter(kinds)).__call__
    fusion.fuse(model)  # once more changes nothing
    assert {type(layer) for layer in model.model.layers} == kinds


@pytest.mark.parametrize("name", ["llama", "gemma4_moe"])
def test_on_a_cpu_nothing_changes(name):
    model = r4.load(run.case(name).packed)[0]
    before = [(type(m), len(m)) for m in model.modules()]
    fusion.fuse(model)
    assert [(type(m), len(m)) for m in model.modules()] == before
    kinds = {"_Block", "_Attention", "_NormedAttention", "_GatedMLP", "_SwitchActivation"}
    assert not kinds & names_of_kinds(model)
    packed = (modules.R4Linear, modules.R4SwitchLinear)
    assert all(m._group is None for m in model.modules() if isinstance(m, packed))


@pytest.mark.usefixtures("launches")
def test_layers_of_unlike_kinds_do_not_join():
    """A bias, which MLX's own product adds, or another number of columns."""

    def make(cols, bias=None):
        return modules.R4Linear(_ops.r4_make(mx.ones((8, cols), mx.bfloat16)), bias)

    def grouped(*layers):
        module = nn.Module()
        module.q_proj, module.k_proj, module.v_proj = layers
        fusion._join_layers(module)
        return [getattr(layer, "_group", None) is not None for layer in layers]

    bias = mx.ones((8,), mx.bfloat16)
    assert grouped(make(16), make(16), make(16)) == [True, True, True]
    assert grouped(make(16), make(16, bias), make(16)) == [True, False, True]
    assert grouped(make(16), make(16, bias), make(16, bias)) == [False, False, False]
    assert grouped(make(16), make(32), make(16)) == [False, False, False]
    assert grouped(make(16), make(16), nn.Linear(16, 8)) == [True, True, False]
