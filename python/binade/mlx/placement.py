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
from collections.abc import Iterable, Iterator, Sequence
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
            name: _make_placeholder(info["shape"], _DTYPES.get(info["dtype"], mx.uint8))
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
            with memory_errors(f"{self._checkpoint.path}: {members[0]}"):
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
        if part.rows is None:
            return False
        return part.rows == _all_rows(self.infos[part.sources[0]]["shape"])

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
                parts[name] = Part((source,), _all_rows(array.shape))
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
        """By walking the graph from each result back to placeholders."""
        if not computed:
            return {}
        tensors = {maker: name for name, maker in _read_graph(self._placeholders)[0].items()}
        # Each result gets an operation of its own, should two be the same array.
        results, inputs = _read_graph({k: mx.stop_gradient(a) for k, a in computed.items()})
        found = {}
        for name, result in results.items():
            seen, stack = set(), [result]
            while stack:
                node = stack.pop()
                if node not in seen:
                    seen.add(node)
                    if node not in tensors:
                        stack += inputs.get(node, ())
            found[name] = tuple(sorted(tensors[node] for node in seen & tensors.keys()))
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
            row1 = row0 + _all_rows(by_row.shape)[1]
            if _same(by_row, rows[..., row0:row1, :]) and _same(
                by_weight, weights[..., row0:row1, :]
            ):
                found[name] = (row0, row1)
        return found


def _all_rows(shape: Sequence[int]) -> tuple[int, int]:
    return 0, shape[-2] if len(shape) > 1 else 0


def _make_placeholder(shape: tuple[int, ...], dtype: mx.Dtype) -> mx.array:
    """Zeros that are never computed, made by an operation of its own, which the graph shows."""
    return mx.stop_gradient(mx.zeros(shape, dtype))


def _read_graph(arrays: Arrays) -> tuple[dict[str, str], dict[str, list[str]]]:
    """The operation that made each array, and the operations before each: their addresses.

    MLX shows its graph only as text, of lines `a -> b`: arrays in quotes and operations as numbers.
    """
    makers: dict[str, str] = {}
    inputs: dict[str, list[str]] = {}
    names = list(arrays)
    for start in range(0, len(names), 1000):  # there may be so many keyword arguments
        chunk = names[start : start + 1000]
        text = io.StringIO()
        mx.export_to_dot(text, **{f"array {i}": arrays[name] for i, name in enumerate(chunk)})
        before: dict[str, list[str]] = defaultdict(list)
        for edge in re.finditer(r"^(.+) -> (.+)$", text.getvalue(), re.MULTILINE):
            before[edge[2]].append(edge[1])
        makers |= {name: before[f'"array {i}"'][0] for i, name in enumerate(chunk)}
        for node, read in list(before.items()):
            if not node.startswith('"'):
                inputs[node] = [maker for array in read for maker in before.get(array, ())]
    return makers, inputs


def _numbers(*shape: int) -> mx.array:
    n = math.prod(shape)
    return mx.arange(-(n // 2), n - n // 2, dtype=mx.int32).reshape(shape)


def _same(a: mx.array, b: mx.array) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and bool(mx.array_equal(a, b))
