"""Builds mlx-lm's models of checkpoints; loads the BF16 side, which packed models are equal to."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from huggingface_hub import snapshot_download
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm import utils
from mlx_lm.tokenizer_utils import TokenizerWrapper

import binade
from binade.mlx import _ops
from binade.mlx.errors import DataError, FileError, ModelError
from binade.mlx.placement import Placement

# Architectures that mlx-lm has under another name: of this one the text part.
_SAME_AS = {"gemma4_unified": "gemma4"}
_FILES = ["*.json", "*.safetensors", "*.txt", "*.jinja", "*.model", "*.tiktoken", "*.jsonl"]


def fetch(path_or_id: binade.Path, revision: str | None = None) -> Path:
    """A directory as it is; a hub id is downloaded as far as it is not in the cache."""
    path = Path(path_or_id)
    if path.exists():
        return path
    try:
        return Path(snapshot_download(str(path_or_id), revision=revision, allow_patterns=_FILES))
    except (OSError, ValueError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__).rstrip(".")
        raise FileError(
            f"{path_or_id}: no such directory, and it cannot be had from the hub: {reason}"
        ) from error


def build_model(
    path: Path, model_config: dict[str, Any] | None = None
) -> tuple[nn.Module, dict[str, Any]]:
    """mlx-lm's model, with random parameters that are not computed yet, and its configuration."""
    config = _read_config(path) | (model_config or {})
    kind = config.get("model_type")
    if not isinstance(kind, str):
        raise ModelError(f"{path}/config.json: model_type is {kind!r}, expected a name")
    if "model_file" in config:
        raise ModelError(f"{path}/config.json: names code, model_file, which is never run")
    text_config = config.get("text_config")
    for part in (config, text_config if isinstance(text_config, dict) else {}):
        if part.get("quantization") or _quantized(part.get("quantization_config")):
            raise ModelError(f"{path}/config.json: the model is quantized, expected BF16")
    config["model_type"] = _SAME_AS.get(kind, kind)
    try:
        model_class, args_class = utils._get_classes(config)
    except (ValueError, AttributeError) as error:
        version = importlib.metadata.version("mlx-lm")
        raise ModelError(f"{path}: mlx-lm {version} has no model {kind!r}") from error
    try:
        model = model_class(args_class.from_dict(config))
    except Exception as error:
        raise ModelError(
            f"{path}/config.json: does not configure a {kind}: {type(error).__name__}: {error}"
        ) from error
    return model, config


def _read_config(path: Path) -> dict[str, Any]:
    try:
        config = utils.load_config(path)
    except OSError as error:
        raise FileError(f"{path}/config.json: {error.strerror or error}") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path}/config.json: is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise DataError(f"{path}/config.json: holds a {type(config).__name__}, expected an object")
    return config


def _quantized(value: Any) -> bool:
    """Early packs carry their own mark where quantized models have their configuration."""
    return bool(value) and not (isinstance(value, dict) and value.get("quant_method") == "binade")


def load_tokenizer(
    path: Path, config: dict[str, Any], tokenizer_config: dict[str, Any] | None = None
) -> TokenizerWrapper:
    eos = config.get("eos_token_id")
    return utils.load_tokenizer(path, tokenizer_config, eos_token_ids=eos)


def load_reference(
    path_or_id: binade.Path,
    *,
    tokenizer_config: dict[str, Any] | None = None,
    model_config: dict[str, Any] | None = None,
    revision: str | None = None,
) -> tuple[nn.Module, TokenizerWrapper]:
    """The model in BF16, as mlx_lm.load gives it, of an ordinary checkpoint or decoded from a pack.

    Unlike mlx_lm.load it knows gemma4_unified, and it drops tensors that the model has no module
    for instead of refusing them.
    """
    path = fetch(path_or_id, revision)
    model, config = build_model(path, model_config)
    placement = Placement(model, _ops.Checkpoint(str(path)))
    tokenizer = load_tokenizer(path, config, tokenizer_config)
    model.update(tree_unflatten(list(placement.arrays(placement.parts))))
    model.eval()
    return model, tokenizer


class load_reference_streamed:  # noqa: N801  # called like load_reference
    """The BF16 model for checkpoints larger than memory: each layer is loaded when it runs.

    Called with token ids [batch, length] it returns the logits [batch, length, vocabulary]. What
    belongs to no layer, such as embeddings, stays in memory.
    """

    def __init__(
        self,
        path_or_id: binade.Path,
        *,
        model_config: dict[str, Any] | None = None,
        revision: str | None = None,
    ):
        path = fetch(path_or_id, revision)
        self.model, _ = build_model(path, model_config)
        placement = Placement(self.model, _ops.Checkpoint(str(path)))
        self.model.eval()
        rest = set(placement.parts)
        paths = {id(module): name for name, module in self.model.named_modules()}
        layers = self.model.layers
        for i, layer in enumerate(layers):
            prefix = f"{paths[id(layer)]}."
            names = [name for name in placement.parts if name.startswith(prefix)]
            rest.difference_update(names)
            layers[i] = _StreamedLayer(layer, prefix, names, placement)
        if not all(isinstance(layer, _StreamedLayer) for layer in self.model.layers):
            raise ModelError(f"{path}: layers of a {self.model.model_type} cannot be streamed")
        self.model.update(tree_unflatten(list(placement.arrays(sorted(rest)))))

    def __call__(self, tokens: mx.array) -> mx.array:
        return self.model(tokens)


class _StreamedLayer:
    """Stands for a layer and loads its weights for the time of a call."""

    def __init__(self, layer: nn.Module, prefix: str, names: list[str], placement: Placement):
        self._layer = layer
        self._prefix = prefix
        self._names = names
        self._placement = placement
        self._empty = tree_flatten(layer.parameters())  # not computed, so no memory

    def __getattr__(self, name: str) -> Any:
        return getattr(self._layer, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        n = len(self._prefix)
        arrays = [(name[n:], array) for name, array in self._placement.arrays(self._names)]
        self._layer.update(tree_unflatten(arrays))
        del arrays
        try:
            output = self._layer(*args, **kwargs)
            mx.eval(output)
        finally:
            self._layer.update(tree_unflatten(self._empty))
        return output
