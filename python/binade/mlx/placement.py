"""Which tensors of a checkpoint become which parameters of an mlx-lm model.

A model's own `sanitize` says so, as code: it renames, drops, splits, transposes, adds. Here it runs
on placeholders, which are never computed, so nothing is read or decoded to find out. A result that
is a placeholder is that tensor. For any other, MLX's graph tells which tensors it is computed from;
whether it is just rows of one, as the halves of fused experts are, is tried with numbers in place
of weights.
"""

from __future__ import annotations

import dataclasses
import io
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from binade.mlx.errors import ModelError, memory_errors

_DTYPES = {
    **{"BOOL": mx.bool_, "U8": mx.uint8, "I8": mx.int8, "U16": mx.uint16, "I16": mx.int16},
    **{"U32": mx.uint32, "I32": mx.int32, "U64": mx.uint64, "I64": mx.int64, "F16": mx.float16},
    **{"BF16": mx.bfloat16, "F32": mx.float32, "F64": mx.float64, "C64": mx.complex64},
}
Arrays = dict[str, mx.array]


@dataclasses.dataclass(frozen=True)
class Part:
    """Where a parameter comes from."""

    sources: tuple[str, ...]  #: names of tensors
    #: It is these rows [row0, row1) of its one source, in a stack of each matrix; None: computed.
    rows: tuple[int, int] | None = None


class Placement:
    """The parts of a model's parameters in an open checkpoint.

    Raises ModelError if a parameter is missing or has another shape than the model wants.
    """

    def __init__(self, model: nn.Module, checkpoint: Any):
        self._model = model
        self._checkpoint = checkpoint
        self.infos = {name: checkpoint.info(name) for name in checkpoint.names()}
        self._placeholders = {
            # 8-bit floats come as uint8, as MLX loads them.
            name: mx.zeros(info["shape"], _DTYPES.get(info["dtype"], mx.uint8))
            for name, info in self.infos.items()
        }
        wanted: Arrays = tree_flatten(model.parameters(), destination={})
        results = self._sanitize({})
        self._check(wanted, results)
        self.parts = self._find_parts({name: results[name] for name in wanted})
        used = {source for part in self.parts.values() for source in part.sources}
        #: Tensors that no parameter comes from, such as those of vision towers.
        self.dropped: list[str] = sorted(self.infos.keys() - used)

    def arrays(self, names: Iterable[str]) -> Iterator[tuple[str, mx.array]]:
        """Yields parameters as ordinary arrays, computed, packed tensors decoded.

        No more tensors are in memory at once than one parameter comes from.
        """
        groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for name in names:
            groups[self.parts[name].sources].append(name)
        for sources, members in groups.items():
            with memory_errors():
                results = self._compute(sources, members)
            yield from results.items()

    def _compute(self, sources: tuple[str, ...], names: list[str]) -> Arrays:
        real = {source: self._checkpoint.load_array(source) for source in sources}
        results = {name: real[sources[0]] for name in names if self._is_whole(name)}
        if len(results) < len(names):
            sanitized = self._sanitize(real)
            results |= {name: sanitized[name] for name in names if name not in results}
            sanitized.clear()
        real.clear()  # what is computed from it is freed as soon as that is done
        mx.eval(results)
        return results

    def _is_whole(self, name: str) -> bool:
        """The parameter is the one tensor that it comes from."""
        part = self.parts[name]
        shape = self.infos[part.sources[0]]["shape"]
        return part.rows == (0, shape[-2] if len(shape) > 1 else 0)

    def _sanitize(self, replaced: Arrays) -> Arrays:
        """What the model makes of the placeholders, some replaced by other arrays."""
        weights = {**self._placeholders, **replaced}
        if not hasattr(self._model, "sanitize"):
            return weights
        try:
            return self._model.sanitize(weights)
        except Exception as error:
            raise ModelError(
                f"{self._checkpoint.path}: mlx-lm cannot take these tensors as a "
                f"{self._model.model_type}: {type(error).__name__}: {error}"
            ) from error

    def _check(self, wanted: Arrays, results: Arrays) -> None:
        path = self._checkpoint.path
        if missing := sorted(wanted.keys() - results.keys()):
            more = f" and {len(missing) - 8} more" if len(missing) > 8 else ""
            names = ", ".join(missing[:8])
            raise ModelError(f"{path}: the model's parameters {names}{more} are missing")
        for name, array in wanted.items():
            if results[name].shape != array.shape:
                raise ModelError(
                    f"{path}: parameter {name} has shape {results[name].shape}, "
                    f"the model wants {array.shape}"
                )

    def _find_parts(self, results: Arrays) -> dict[str, Part]:
        names = {id(array): name for name, array in self._placeholders.items()}
        parts, computed = {}, {}
        for name, array in results.items():
            source = names.get(id(array))
            if source is None:
                computed[name] = array
            else:
                rows = array.shape[-2] if array.ndim > 1 else 0
                parts[name] = Part((source,), (0, rows))
        return parts | self._find_computed(computed)

    def _find_computed(self, computed: Arrays) -> dict[str, Part]:
        sources = self._find_sources(computed)
        members: dict[str, list[str]] = defaultdict(list)
        for name, found in sources.items():
            if len(found) == 1 and self.infos[found[0]]["packed"]:
                members[found[0]].append(name)
        rows: dict[str, tuple[int, int] | None] = {}
        for source, names in members.items():
            rows |= self._find_rows(source, names)
        return {name: Part(found, rows.get(name)) for name, found in sources.items()}

    def _find_sources(self, computed: Arrays) -> dict[str, tuple[str, ...]]:
        """From the graph, as text: lines `a -> b` with arrays in quotes and operations as numbers."""
        if not computed:
            return {}
        tensors = list(self._placeholders)
        text = io.StringIO()
        placeholders = {f"tensor {i}": a for i, a in enumerate(self._placeholders.values())}
        results = {f"result {i}": a for i, a in enumerate(computed.values())}
        mx.export_to_dot(text, **placeholders, **results)
        inputs: dict[str, list[str]] = defaultdict(list)
        for edge in re.finditer(r"^(.+) -> (.+)$", text.getvalue(), re.MULTILINE):
            inputs[edge[2]].append(edge[1])
        found = {}
        for i, name in enumerate(computed):
            seen, stack = set(), [f'"result {i}"']
            while stack:
                node = stack.pop()
                if node not in seen:
                    seen.add(node)
                    if not node.startswith('"tensor '):
                        stack += inputs[node]
            numbers = sorted(int(node[8:-1]) for node in seen if node.startswith('"tensor '))
            found[name] = tuple(tensors[number] for number in numbers)
        return found

    def _find_rows(self, source: str, names: list[str]) -> dict[str, tuple[int, int] | None]:
        """The rows of the source that each result is, if it is just rows in their order.

        Numbers stand in for the weights, first one for each row, then one for each weight of the
        first matrix: together they show every dimension, and take little memory. Negative ones are
        among them, as a sanitize might clip or take absolute values.
        """
        *stack, nrows, ncols = self.infos[source]["shape"]
        rows = _numbers(*stack, nrows, 1)
        weights = _numbers(*(1 for _ in stack), nrows, ncols)
        try:
            from_rows = self._sanitize({source: rows})
            from_weights = self._sanitize({source: weights})
        except ModelError:  # it looks at shapes
            return {}
        found: dict[str, tuple[int, int] | None] = {}
        for name in names:
            by_row, by_weight = from_rows.get(name), from_weights.get(name)
            if by_row is None or by_weight is None or not by_row.size:
                continue
            row0 = int(by_row.flatten()[0]) - int(rows.flatten()[0])
            row1 = row0 + (by_row.shape[-2] if by_row.ndim > 1 else 0)
            if _same(by_row, rows[..., row0:row1, :]) and _same(
                by_weight, weights[..., row0:row1, :]
            ):
                found[name] = (row0, row1)
        return found


def _numbers(*shape: int) -> mx.array:
    n = math.prod(shape)
    return mx.arange(-(n // 2), n - n // 2, dtype=mx.int32).reshape(shape)


def _same(a: mx.array, b: mx.array) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and bool(mx.array_equal(a, b))
