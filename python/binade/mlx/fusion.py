"""Fewer and larger launches on GPUs: layers with the same input, and what is around a product.

Every operation that MLX puts on a GPU costs some microseconds whatever it does, which packed
weights make felt. So q, k and v, or gate and up, are computed in one launch, and with them an RMS
norm before them and the activation after them; and a residual is added by the launch of its
product. Only the grouping changes, no rounding: what is computed is what mlx-lm's own code says,
which is looked at, not guessed from names. Code that is not known here stays as it is.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.switch_layers import SwitchGLU

from binade.mlx import _ops
from binade.mlx.modules import R4Linear, R4SwitchLinear

# Names of layers, within one module, that mlx-lm's models give the same input one after another.
_TOGETHER = [
    ("q_proj", "k_proj", "v_proj"),
    ("gate_proj", "up_proj"),
    ("in_proj_qkv", "in_proj_z"),
    ("in_proj_a", "in_proj_b"),
]
Activation = Callable[[mx.array, mx.array], mx.array]


def fuse(model: nn.Module) -> None:
    """Changes the packed layers of a model, and what uses them, in place. On CPUs it does nothing.

    Where a module is used in another way after all, it computes what it did before.
    """
    modules = model.modules()
    if not any(_is_on_gpu(module) for module in modules):
        return
    for module in modules:
        _join_layers(module)
        if type(module) is SwitchGLU:
            _replace_activation(module)
        elif activation := _read_mlp(type(module)):
            _become(module, _GatedMLP)
            module._fused_activation = _FusedActivation(activation)
        elif mixin := _REPLACED.get(_calls(type(module))):
            _become(module, mixin)


def _is_on_gpu(layer: Any) -> bool:
    return isinstance(layer, (R4Linear, R4SwitchLinear)) and layer._r4.device != "cpu"


# ---- Layers with the same input -----------------------------------------------------------------


def _join_layers(module: nn.Module) -> None:
    for names in _TOGETHER:
        layers = [module[name] for name in names if name in module]
        # A bias is added by MLX's own product, which has no launch to share.
        layers = [x for x in layers if _is_on_gpu(x) and not ("bias" in x and _is_linear(x))]
        if len(layers) < 2 or len({(type(layer), layer.input_dims) for layer in layers}) > 1:
            continue
        group = _ops.R4Group([layer._r4 for layer in layers])
        for place, layer in enumerate(layers):
            layer.join(group, place)


def _is_linear(layer: Any) -> bool:
    return isinstance(layer, R4Linear)


# ---- Activations --------------------------------------------------------------------------------


class _FusedActivation:
    """act(gate) * up, where an activation of mlx-lm says so, with the products it takes."""

    def __init__(self, activation: Activation):
        self._activation = activation
        self._table = _table_of(activation)

    def __call__(self, gate: mx.array, up: mx.array) -> mx.array:
        fused = _ops.fuse_gated(gate, up, self._table)
        return self._activation(gate, up) if fused is None else fused


_tables: dict[Activation, mx.array] = {}


def _table_of(activation: Activation) -> mx.array:
    """What MLX gives for each of the 65,536 BF16 values: activation(gate, 1)."""
    if activation not in _tables:
        gates = mx.arange(65536, dtype=mx.uint32).astype(mx.uint16).view(mx.bfloat16)
        _tables[activation] = activation(gates, mx.ones_like(gates))
        mx.eval(_tables[activation])
    return _tables[activation]


class _GatedMLP:
    """A mixin for MLPs that are act(gate_proj(x), up_proj(x)) and then down_proj."""

    def __call__(self, x: mx.array) -> mx.array:
        return self.down_proj(self._fused_activation(self.gate_proj(x), self.up_proj(x)))


class _SwitchActivation(nn.Module):
    """The activation of a SwitchGLU, which is called with up and gate."""

    def __init__(self, activation: Activation):
        super().__init__()
        self._fused = _FusedActivation(activation)

    def __call__(self, x: mx.array, gate: mx.array) -> mx.array:
        return self._fused(gate, x)


def _replace_activation(module: SwitchGLU) -> None:
    """If it says `return name(gate, x)`."""
    kind = type(module.activation)
    body = _calls(kind)
    for name in _names_in(body):
        if body == f"return {name}(gate, x)" and _is_product(found := _look_up(kind, name)):
            module.activation = _SwitchActivation(found)
            return


def _read_mlp(kind: type) -> Activation | None:
    """The activation of an MLP that says so and nothing else."""
    body = _calls(kind)
    for name in _names_in(body):
        wanted = f"return self.down_proj({name}(self.gate_proj(x), self.up_proj(x)))"
        if body == wanted and _is_product(found := _look_up(kind, name)):
            return found
    return None


# Functions that give each element for itself, unlike a softmax.
_ELEMENTWISE = {"nn.silu", "nn.gelu_approx"}


def _is_product(activation: Any) -> bool:
    """It is a function of each gate times x: only then a table of it says everything."""
    function = inspect.unwrap(activation) if callable(activation) else None
    if not inspect.isfunction(function) or list(inspect.signature(function).parameters) != [
        "gate",
        "x",
    ]:
        return False
    statement, *others = _body_of(function) or [None]
    product = statement.value if isinstance(statement, ast.Return) and not others else None
    return (
        isinstance(product, ast.BinOp)
        and isinstance(product.op, ast.Mult)
        and ast.unparse(product.right) == "x"
        and isinstance(product.left, ast.Call)
        and ast.unparse(product.left.func) in _ELEMENTWISE
        and function.__globals__.get("nn") is nn
        and [ast.unparse(argument) for argument in product.left.args] == ["gate"]
        and not product.left.keywords
    )


# ---- Attention ----------------------------------------------------------------------------------


class _Attention:
    """A mixin for attention: of one token, heads need no transposing."""

    def __call__(self, x: mx.array, mask: Any = None, cache: Any = None) -> mx.array:
        batch, length, _ = x.shape
        if length != 1:
            return super().__call__(x, mask, cache)
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        q = self._normed("q_norm", q.reshape(batch, self.n_heads, 1, -1))
        k = self._normed("k_norm", k.reshape(batch, self.n_kv_heads, 1, -1))
        v = v.reshape(batch, self.n_kv_heads, 1, -1)
        if cache is None:
            q, k = self.rope(q), self.rope(k)
        else:
            q, k = self.rope(q, offset=cache.offset), self.rope(k, offset=cache.offset)
            k, v = cache.update_and_fetch(k, v)
        attend = _look_up(type(self), "scaled_dot_product_attention")
        output = attend(q, k, v, cache=cache, scale=self.scale, mask=mask)
        return self.o_proj(output.reshape(batch, 1, -1))

    def _normed(self, norm: str, heads: mx.array) -> mx.array:
        return heads


class _NormedAttention(_Attention):
    """The same where heads are normed."""

    def _normed(self, norm: str, heads: mx.array) -> mx.array:
        return self[norm](heads)


# ---- Residuals ----------------------------------------------------------------------------------


def _add(x: mx.array, r: mx.array) -> mx.array:
    fused = _ops.fuse_add(x, r)
    return x + r if fused is None else fused


class _Block:
    """A mixin for layers that add what attention and MLP give."""

    def __call__(self, x: mx.array, mask: Any = None, cache: Any = None) -> mx.array:
        h = _add(x, self.self_attn(self.input_layernorm(x), mask, cache))
        return _add(h, self.mlp(self.post_attention_layernorm(h)))


class _HybridBlock:
    """The same with two kinds of attention."""

    def __call__(self, x: mx.array, mask: Any = None, cache: Any = None) -> mx.array:
        attention = self.linear_attn if self.is_linear else self.self_attn
        h = _add(x, attention(self.input_layernorm(x), mask, cache))
        return _add(h, self.mlp(self.post_attention_layernorm(h)))


_ATTENDING = """\
if cache is not None:
    queries = self.rope(queries, offset=cache.offset)
    keys = self.rope(keys, offset=cache.offset)
    keys, values = cache.update_and_fetch(keys, values)
else:
    queries = self.rope(queries)
    keys = self.rope(keys)
output = scaled_dot_product_attention(\
queries, keys, values, cache=cache, scale=self.scale, mask=mask)
output = output.transpose(0, 2, 1, 3).reshape(B, L, -1)
return self.o_proj(output)"""

# What layers of mlx-lm say, and what takes their place.
_REPLACED = {
    """\
r = self.self_attn(self.input_layernorm(x), mask, cache)
h = x + r
r = self.mlp(self.post_attention_layernorm(h))
out = h + r
return out""": _Block,
    """\
r = self.self_attn(self.input_layernorm(x), mask, cache)
h = x + r
r = self.mlp(self.post_attention_layernorm(h))
return h + r""": _Block,
    """\
if self.is_linear:
    r = self.linear_attn(self.input_layernorm(x), mask, cache)
else:
    r = self.self_attn(self.input_layernorm(x), mask, cache)
h = x + r
out = h + self.mlp(self.post_attention_layernorm(h))
return out""": _HybridBlock,
    f"""\
B, L, D = x.shape
queries, keys, values = (self.q_proj(x), self.k_proj(x), self.v_proj(x))
queries = queries.reshape(B, L, self.n_heads, -1).transpose(0, 2, 1, 3)
keys = keys.reshape(B, L, self.n_kv_heads, -1).transpose(0, 2, 1, 3)
values = values.reshape(B, L, self.n_kv_heads, -1).transpose(0, 2, 1, 3)
{_ATTENDING}""": _Attention,
    f"""\
B, L, D = x.shape
queries, keys, values = (self.q_proj(x), self.k_proj(x), self.v_proj(x))
queries = self.q_norm(queries.reshape(B, L, self.n_heads, -1)).transpose(0, 2, 1, 3)
keys = self.k_norm(keys.reshape(B, L, self.n_kv_heads, -1)).transpose(0, 2, 1, 3)
values = values.reshape(B, L, self.n_kv_heads, -1).transpose(0, 2, 1, 3)
{_ATTENDING}""": _NormedAttention,
}


# ---- Reading code -------------------------------------------------------------------------------

_bodies: dict[Any, list[ast.stmt]] = {}


def _body_of(function: Any) -> list[ast.stmt]:
    """Its statements; none if its source cannot be had."""
    if function not in _bodies:
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        except (OSError, TypeError, SyntaxError):
            return []
        definition = tree.body[0]
        _bodies[function] = definition.body if isinstance(definition, ast.FunctionDef) else []
    return _bodies[function]


def _calls(kind: type) -> str:
    """What a class does when it is called, in one way of writing; "" if that is not its own."""
    function = vars(kind).get("__call__")
    return "\n".join(ast.unparse(statement) for statement in _body_of(function)) if function else ""


def _names_in(body: str) -> list[str]:
    return [node.id for node in ast.walk(ast.parse(body)) if isinstance(node, ast.Name)]


def _look_up(kind: type, name: str) -> Any:
    return getattr(sys.modules.get(kind.__module__), name, None)


_classes: dict[tuple[type, type], type] = {}


def _become(module: nn.Module, mixin: type) -> None:
    """Gives a module another call; it stays an instance of its class."""
    kind = type(module)
    if (kind, mixin) not in _classes:
        _classes[kind, mixin] = type(kind.__name__, (mixin, kind), {"__module__": kind.__module__})
    module.__class__ = _classes[kind, mixin]
