"""Layers whose weight stays packed: the same bits as nn.Linear, nn.Embedding and SwitchLinear."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.switch_layers import SwitchLinear

from binade.mlx import _ops
from binade.mlx.errors import UsageError


class _Packed(nn.Module):
    """A layer with a packed weight, which cannot change and is no parameter of the model."""

    def __init__(self, weight: Any, bias: mx.array | None = None):
        nn.Module.__init__(self)  # not that of nn.Linear, which would make a random weight
        self._r4 = weight
        self._group, self._place = None, 0
        # A tuple lands in the module's dictionary, where bytes are counted; the underscore keeps it
        # out of parameters().
        self._r4_arrays = weight.arrays
        if bias is not None:
            self.bias = bias

    def join(self, group: Any, place: int) -> None:
        """From now on products come from a group of layers, _ops.R4Group, as its number `place`."""
        self._group, self._place = group, place

    @property
    def weight(self) -> mx.array:
        """The weight in BF16, decoded only if it is evaluated: its shape and dtype cost nothing."""
        return _ops.r4_rebuild(self._r4)

    def parameters(self) -> dict[str, Any]:
        """With the weight: MLX asks a layer itself for its parameters to shard or to count them.

        Without it, MLX's sharding would silently keep random weights. A model that holds this layer
        does not come here: its parameters() leave the packed weight out.
        """
        return {**super().parameters(), "weight": self.weight}

    def update(self, parameters: dict[str, Any], strict: bool = True) -> nn.Module:
        if "weight" in parameters:
            raise UsageError(
                "a packed weight cannot be replaced, which sharding in place would do: "
                "load the model with binade.mlx.loader.load_reference for that"
            )
        return super().update(parameters, strict)

    def _extra_repr(self) -> str:
        return f"shape={self._r4.shape}, bias={'bias' in self}"


class R4Linear(_Packed, nn.Linear):
    """y = x W^T + bias; W is [output_dims, input_dims]."""

    def __call__(self, x: mx.array) -> mx.array:
        if self._group is not None:
            return self._group.matmul(self._place, x)
        return _ops.r4_matmul(x, self._r4, self.get("bias"))

    @property
    def input_dims(self) -> int:
        return self._r4.shape[1]

    @property
    def output_dims(self) -> int:
        return self._r4.shape[0]


class R4Embedding(_Packed, nn.Embedding):
    """Rows of W, [number of tokens, dims], by their ids; or W as a linear layer."""

    def __call__(self, x: mx.array) -> mx.array:
        return _ops.r4_rows(self._r4, x)

    def as_linear(self, x: mx.array) -> mx.array:
        return _ops.r4_matmul(x, self._r4)


class R4SwitchLinear(_Packed, SwitchLinear):
    """Products with the expert that an index names; W is [num_experts, output_dims, input_dims]."""

    def __call__(self, x: mx.array, indices: mx.array, sorted_indices: bool = False) -> mx.array:
        if self._group is not None:
            y = self._group.gather_mm(self._place, x, indices, sorted_indices=sorted_indices)
        else:
            y = _ops.r4_gather_mm(x, self._r4, rhs_indices=indices, sorted_indices=sorted_indices)
        if "bias" in self:
            y = y + mx.expand_dims(self["bias"][indices], -2)
        return y

    @property
    def input_dims(self) -> int:
        return self._r4.shape[2]

    @property
    def output_dims(self) -> int:
        return self._r4.shape[1]

    @property
    def num_experts(self) -> int:
        return self._r4.shape[0]


_PACKED = {nn.Linear: R4Linear, nn.Embedding: R4Embedding, SwitchLinear: R4SwitchLinear}


def can_be_packed(module: nn.Module) -> bool:
    """Exactly those classes: a subclass may use its weight in other ways."""
    return type(module) in _PACKED


def packed_like(module: nn.Module, weight: Any) -> nn.Module:
    """The counterpart of a module, with its bias."""
    return _PACKED[type(module)](weight, module.get("bias"))
