"""Loads a packed checkpoint as an mlx-lm model whose weights stay packed in memory.

model, tokenizer, dropped = load("packed")
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_unflatten
from mlx_lm.tokenizer_utils import TokenizerWrapper

import binade
from binade.mlx import _ops
from binade.mlx.errors import UsageError, memory_errors
from binade.mlx.fusion import fuse
from binade.mlx.loader import build_model, fetch, load_tokenizer
from binade.mlx.modules import can_be_packed, packed_like
from binade.mlx.placement import Part, Placement


def load(
    path_or_id: binade.Path,
    *,
    tokenizer_config: dict[str, Any] | None = None,
    model_config: dict[str, Any] | None = None,
    revision: str | None = None,
    cache_limit_gb: float | None = 2,
    wire: bool = True,
) -> tuple[nn.Module, TokenizerWrapper, list[str]]:
    """Returns the model, its tokenizer, and the names of tensors that the model has no use for.

    On Apple GPUs two settings of MLX change, for the whole process: wire lets it keep memory up to
    what Metal recommends from being paged out, and cache_limit_gb is how much freed memory it
    keeps, as rebuilt weights would else stay beside the packed ones; None leaves it.

    The checkpoint is a directory or a hub id, downloaded as far as it is not in the cache. Peak
    memory is the packed model and one tensor.

    Raises UsageError if it is not packed, ModelError if mlx-lm has no such architecture or a
    parameter is missing, DataError if a file is corrupt, FileError if one is absent, MemoryError;
    each is one sentence. Nothing stays open or in memory then.
    """
    path = fetch(path_or_id, revision)
    if mx.default_device().type == mx.gpu and mx.metal.is_available():
        if wire:
            mx.set_wired_limit(int(mx.device_info()["max_recommended_working_set_size"]))
        if cache_limit_gb is not None:
            mx.set_cache_limit(int(cache_limit_gb * 2**30))
    checkpoint = _ops.Checkpoint(str(path))
    if checkpoint.format == 0:
        raise UsageError(f"{path}: is not packed; `binade pack` makes a pack of a BF16 checkpoint")
    model, config = build_model(path, model_config)
    placement = Placement(model, checkpoint)
    _check_memory(path, placement)
    tokenizer = load_tokenizer(path, config, tokenizer_config)
    _fill(model, checkpoint, placement)
    model.eval()
    return model, tokenizer, placement.dropped


def _fill(model: nn.Module, checkpoint: Any, placement: Placement) -> None:
    """Gives every parameter its value: packed weights in new modules, others as arrays."""
    modules = dict(model.named_modules())
    plain = []
    for name, part in placement.parts.items():
        path, _, leaf = name.rpartition(".")
        weight = None
        if leaf == "weight" and can_be_packed(modules[path]):
            weight = _load_weight(checkpoint, placement, name, part)
        if weight is None:
            plain.append(name)
        else:
            model.update_modules(tree_unflatten([(path, packed_like(modules[path], weight))]))
    for name, array in placement.arrays(plain):
        model.update(tree_unflatten([(name, array)]))
    fuse(model)


def _load_weight(checkpoint: Any, placement: Placement, name: str, part: Part) -> Any:
    """The packed weight, or None if none of its sources is packed."""
    if not any(placement.infos[source]["packed"] for source in part.sources):
        return None
    with memory_errors(f"{checkpoint.path}: {name}"):
        if part.rows is not None:
            return checkpoint.load_r4(part.sources[0], *part.rows)
        # Computed, such as separate experts that were stacked: packed anew.
        ((_, array),) = placement.arrays([name])
        if array.dtype != mx.bfloat16 or not _lies_like_a_checkpoint(array):
            return None
        return _ops.r4_make(array)


def _lies_like_a_checkpoint(array: mx.array) -> bool:
    """On a GPU MLX multiplies by a transposed view in another order than by rows in memory."""
    return mx.default_device().type == mx.cpu or _ops.is_row_contiguous(array)


def _check_memory(path: Path, placement: Placement) -> None:
    """Linux grants memory that it does not have, and ends the process later."""
    needed = 0
    for part in placement.parts.values():
        for source in part.sources:
            info = placement.infos[source]
            share = 1.0
            if part.rows is not None and len(info["shape"]) > 1 and info["shape"][-2]:
                share = (part.rows[1] - part.rows[0]) / info["shape"][-2]
            # 12 bits of the 16 stay; escapes come on top.
            needed += int(share * info["nbytes"] * (0.75 if info["packed"] else 1))
    available = available_nbytes()
    if available is not None and needed > available:
        raise MemoryError(
            f"{path}: the model takes at least {needed / 1e9:.2f} GB of memory, "
            f"{available / 1e9:.2f} GB are available"
        )


def available_nbytes() -> int | None:
    """Memory that this process could still get on the default device; None if it does not tell."""
    if mx.default_device().type == mx.gpu:
        free = mx.device_info().get("free_memory")
        return None if free is None else int(free) + mx.get_cache_memory()
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        kilobytes = {key: int(rest.split()[0]) for key, rest in (s.split(":") for s in lines)}
        return 1024 * (kilobytes["MemAvailable"] + kilobytes["SwapFree"])
    except (OSError, KeyError, ValueError):
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return None
