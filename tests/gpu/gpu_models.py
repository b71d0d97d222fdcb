"""Checkpoints of few layers in the true shapes of each family; packed, and loaded both ways.

Values are made on the GPU and saved from there. Vocabularies are cut, but one.
"""

import json
import shutil
from pathlib import Path
from unittest import mock

import mlx.core as mx
import mlx_running as run
from binade.mlx import loader, r4
from gpu_running import DRY
from mlx_lm.models.switch_layers import SwitchLinear
from mlx_lm.utils import load_model
from mlx_models import (
    FAMILIES,
    Family,
    is_matrix,
    lay_out,
    model_shapes,
    spread,
    to_gemma4,
    to_qwen35,
)
from true_models import MODELS, QWEN2_7B, QWEN3_30B, changed, gemma_layers

# A sliding layer and a full one; a window that prompts pass.
GEMMA = {
    "num_hidden_layers": 2,
    "layer_types": gemma_layers(2, 2),
    "vocab_size": 4096,
    "sliding_window": 32,
}
# The later two share keys and values of the former two.
GEMMA_E = {
    **GEMMA,
    "num_hidden_layers": 4,
    "layer_types": gemma_layers(4, 2),
    "num_kv_shared_layers": 2,
    "vocab_size_per_layer_input": 4096,
}
TWO = {"num_hidden_layers": 2, "vocab_size": 4096}
LARGE = {
    "llama_8b": Family(changed(MODELS["Llama 3.1 8B"], **TWO)),
    "llama_3b": Family(changed(MODELS["Llama 3.2 3B"], num_hidden_layers=2)),
    "gemma4_12b": Family(changed(MODELS["Gemma 4 12B"], **GEMMA), to_gemma4),
    "gemma4_e4b": Family(changed(MODELS["Gemma 4 E4B"], **GEMMA_E), to_gemma4),
    "gemma4_moe": Family(
        changed(MODELS["Gemma 4 26B-A4B"], **GEMMA), to_gemma4, fused_experts=True
    ),
    "qwen3_5": Family(changed(MODELS["Qwen3.5 9B"], **TWO, full_attention_interval=2), to_qwen35),
    "qwen3_moe": Family(
        changed(QWEN3_30B, vocab_size=4096, num_hidden_layers=1), separate_experts="switch_mlp"
    ),
    "qwen2": Family(changed(QWEN2_7B, **TWO)),
}
if DRY:
    LARGE = {name: FAMILIES[name] for name in FAMILIES if name not in ("phi3", "glm4", "mistral")}


def make_values(name, shape, family):
    if name.endswith("A_log"):
        return mx.log(mx.random.uniform(1, 16, shape))
    mean, deviation = spread(name, shape, family)
    if "embed_tokens" in name and family.names is to_gemma4 and not DRY:
        deviation /= 4  # wide models would else say the last token again and again
    values = mean + deviation * mx.random.normal(shape)
    if is_matrix(name, shape):
        # Exponents beyond the 15 most frequent, and zeros.
        chance = mx.random.uniform(shape=shape)
        values = mx.where(chance < 0.01, values * 2.0**-40, values)
        values = mx.where(chance > 0.999, 0.0, values)
    return values.astype(mx.bfloat16)


def make_checkpoint(directory, family):
    mx.random.seed(1)
    directory.mkdir()
    shapes = model_shapes(family.config)
    values = {name: make_values(name, shape, family) for name, shape in shapes.items()}
    tensors = dict(lay_out(values, family))
    for name, shape in family.extra.items():
        tensors[name] = (0.02 * mx.random.normal(shape)).astype(mx.bfloat16)
    mx.save_safetensors(str(directory / "model.safetensors"), tensors, {"format": "pt"})
    (directory / "config.json").write_text(json.dumps(family.config))


def load_without_tokenizer(load, path):
    def no_tokenizer(*_):
        return None

    with (
        mock.patch.object(loader, "load_tokenizer", no_tokenizer),
        mock.patch.object(r4, "load_tokenizer", no_tokenizer),
    ):
        return load(path)[0]


class Case:
    """A family: its checkpoint, the reference, and the packed models of both formats."""

    def __init__(self, name, folder):
        self.name = name
        self.folder = Path(folder)
        self.original = self.folder / "original"
        family = LARGE[name]
        make_checkpoint(self.original, family)
        mx.clear_cache()
        self.reference = self._load_reference(family)
        self._packed = {}

    def _load_reference(self, family):
        """mlx-lm's own loading where it can."""
        if family.config["model_type"] == "gemma4_unified" or family.extra:
            model = load_without_tokenizer(loader.load_reference, self.original)
        else:
            model, _ = load_model(self.original)
        for module in model.modules():
            if DRY and isinstance(module, SwitchLinear):
                module.__class__ = run.PlainSwitchLinear
        return model

    def packed(self, pack_format):
        if pack_format not in self._packed:
            path = self.folder / f"format{pack_format}"
            run.pack(self.original, path, "--format", str(pack_format), "--no-hash")
            self._packed[pack_format] = load_without_tokenizer(r4.load, path)
            shutil.rmtree(path)
        return self._packed[pack_format]

    def forget(self):
        self._packed.clear()
        self.reference = None
        shutil.rmtree(self.folder)
        mx.clear_cache()
