"""Models of mlx-lm whose matrix products run on the emulator; everything else is MLX's on the CPU.

A route is how products are made: by MLX's kernels as MLX would choose them on a GPU, or by ours.
"""

import functools

import mlx.core as mx
import mlx.nn as nn
import mlx_lm
import numpy as np
from agreement import Variant
from mlx.utils import tree_flatten
from mlx_lm.models.switch_layers import SwitchLinear
from mlx_models import FAMILIES, make_model
from r4_comparing import M4, mlx, multiply_by_mlx, ours
from r4_products import pack

GPU = M4


def bits_of(array):
    return np.array(mx.contiguous(array).view(mx.uint16))


def to_mlx(bits):
    return mx.array(bits).view(mx.bfloat16)


class ByMlx:
    """With MLX's emulated kernels."""

    def matmul(self, x, w):
        return multiply_by_mlx(x, w, Variant(), GPU)

    def gather(self, x, w, experts, is_sorted):
        if is_sorted:
            return mlx(Variant()).gather_rhs(x, w, experts)
        return mlx(Variant()).gather_mv(x, w, np.arange(len(x)), experts)


class ByOurs:
    """With our kernels on R4, each weight packed once. `nrebuilt`: products that none serves."""

    def __init__(self):
        self.nrebuilt = self.nmatmuls = self.ngathers = self.nsorted = 0
        self.pack = functools.lru_cache(None)(lambda name: pack(self.weights[name]))
        self.weights = {}

    def packed(self, w):
        self.weights[id(w)] = w
        return self.pack(id(w))

    def matmul(self, x, w):
        self.nmatmuls += 1
        made = ours(Variant(), GPU).matmul(x, [self.packed(w)])
        if made is None:
            self.nrebuilt += 1
            rebuilt = ours(Variant(), GPU).rebuild(self.packed(w))
            return multiply_by_mlx(x, rebuilt, Variant(), GPU)
        return made[0]

    def gather(self, x, w, experts, is_sorted):
        self.ngathers += 1
        self.nsorted += is_sorted
        run, weight = ours(Variant(), GPU), [self.packed(w)]
        if is_sorted:
            return run.gather(x, weight, experts, is_sorted=True)[0]
        return run.gather(x, weight, experts, lhs=np.arange(len(x), dtype=np.uint32))[0]


class Wrong(ByMlx):
    """MLX's, but for one output whose last bit is another."""

    def matmul(self, x, w):
        y = super().matmul(x, w)
        y[0, 0] ^= 1
        return y


class Emulated:
    """What the layers below share."""

    def weight_bits(self):
        if not hasattr(self, "_bits"):
            object.__setattr__(self, "_bits", bits_of(self.weight))
        return self._bits

    def product(self, x):
        y = self.route.matmul(bits_of(x.reshape(-1, x.shape[-1])), self.weight_bits())
        return to_mlx(y).reshape(*x.shape[:-1], y.shape[-1])


class EmulatedLinear(Emulated, nn.Linear):
    def __call__(self, x):
        return self.product(x)


class EmulatedEmbedding(Emulated, nn.Embedding):
    def as_linear(self, x):
        return self.product(x)


class EmulatedSwitchLinear(Emulated, SwitchLinear):
    def __call__(self, x, indices, sorted_indices=False):
        batch = np.broadcast_shapes(tuple(x.shape[:-2]), tuple(indices.shape))
        rows = mx.broadcast_to(x, (*batch, 1, x.shape[-1])).reshape(-1, x.shape[-1])
        experts = np.array(mx.broadcast_to(indices, batch)).reshape(-1).astype(np.uint32)
        y = self.route.gather(bits_of(rows), self.weight_bits(), experts, sorted_indices)
        return to_mlx(y).reshape(*batch, 1, y.shape[-1])


KINDS = {
    nn.Linear: EmulatedLinear,
    nn.Embedding: EmulatedEmbedding,
    SwitchLinear: EmulatedSwitchLinear,
}


def load(family, folder):
    """The model, every product of which goes to `route`, which set_route sets."""
    path = folder / family
    make_model(path, FAMILIES[family])
    model, _ = mlx_lm.load(str(path))
    for _, module in model.named_modules():
        if type(module) in KINDS:
            if "bias" in module:
                raise ValueError("biases are for other tests")
            object.__setattr__(module, "__class__", KINDS[type(module)])
    assert all(a.dtype == mx.bfloat16 for _, a in tree_flatten(model.parameters()) if a.ndim > 1)
    return model


def set_route(model, route):
    for _, module in model.named_modules():
        if isinstance(module, Emulated):
            object.__setattr__(module, "route", route)


def logits(model, route, prompt, token):
    """Of a prompt, and of one decode step after it."""
    set_route(model, route)
    cache = mlx_lm.models.cache.make_prompt_cache(model)
    steps = [model(mx.array([tokens]), cache=cache) for tokens in (prompt, [token])]
    return [bits_of(step) for step in steps]
