"""Tiny models on disk, packed and loaded; ways to run them and to compare bits. Needs MLX.

The reference is mlx-lm itself on the original checkpoint.
"""

import dataclasses
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx_lm.generate import generate_step
from mlx_lm.models.switch_layers import SwitchLinear
from mlx_models import FAMILIES, VOCAB, make_model

BINADE = os.environ["BINADE_BIN"]
# mlx_lm.load refuses tensors without a module and has no gemma4_unified.
NEEDS_OUR_LOADER = {"gemma4_12b", "gemma4_e"}


@dataclasses.dataclass
class Case:
    """One family in one format."""

    name: str
    original: Path
    packed: Path
    extra: list  # names of tensors without a module


@functools.cache
def work_dir():
    return Path(tempfile.mkdtemp(prefix="binade-mlx-"))


def forget_all():
    shutil.rmtree(work_dir(), ignore_errors=True)
    for cached in (work_dir, original, reference, _case, _packed):
        cached.cache_clear()


@functools.cache
def original(name):
    path = work_dir() / name
    return path, make_model(path, FAMILIES[name])


def case(name, pack_format=2, *options):
    return _case(name, pack_format, options)


@functools.cache
def _case(name, pack_format, options):
    path, extra = original(name)
    packed = work_dir() / "-".join([name, str(pack_format), *options])
    pack(path, packed, "--format", str(pack_format), *options)
    return Case(name, path, packed, extra)


def pack(model, out, *options):
    subprocess.run([BINADE, "pack", model, "--out", out, "-q", *options], check=True)


@functools.cache
def reference(name):
    path, _ = original(name)
    if name in NEEDS_OUR_LOADER:
        from binade.mlx.loader import load_reference

        model, tokenizer = load_reference(path)
    else:
        import mlx_lm

        model, tokenizer = mlx_lm.load(str(path))
    for module in model.modules():
        if isinstance(module, SwitchLinear):
            module.__class__ = PlainSwitchLinear
    return model, tokenizer


def packed(name, pack_format=2):
    """The model, its tokenizer and the dropped names."""
    return _packed(name, pack_format)


@functools.cache
def _packed(name, pack_format):
    from binade.mlx.r4 import load

    return load(case(name, pack_format).packed)


class PlainSwitchLinear(SwitchLinear):
    """Every expert's plain matmul, of which each index takes one: MLX's CPUs gather no BF16."""

    def __call__(self, x, indices, sorted_indices=False):
        y = None
        for expert in range(self.num_experts):
            product = x @ self["weight"][expert].T
            chosen = (indices == expert)[..., None, None]
            y = mx.where(chosen, product, mx.zeros_like(product) if y is None else y)
        return y


# ---- Running


def prompt_of(length, seed=0):
    return np.random.default_rng(seed).integers(2, VOCAB, length).tolist()


def generate_tokens(model, prompt, n, **kwargs):
    """Tokens and log-probabilities of mlx-lm's generation."""
    tokens, logprobs = [], []
    for token, row in generate_step(mx.array(prompt), model, max_tokens=n, **kwargs):
        tokens.append(token)
        logprobs.append(row)
    return tokens, mx.stack(logprobs)


# ---- Bits


def bits(array):
    assert array.dtype == mx.bfloat16
    return np.array(array.view(mx.uint16))


def assert_same_bits(a, b):
    x, y = bits(a), bits(b)
    assert x.shape == y.shape
    wrong = np.argwhere(x != y)
    assert not len(wrong), f"{len(wrong)} of {x.size} differ, first at {wrong[0].tolist()}"


def assert_lively(logits):
    """Equal bits would prove little if logits were constant or not finite."""
    values = np.array(logits.astype(mx.float32))
    assert np.isfinite(values).all()
    assert values.std() > 0.5
    assert len(np.unique(values)) > 50


def packed_modules(model):
    from binade.mlx import modules

    kinds = (modules.R4Linear, modules.R4Embedding, modules.R4SwitchLinear)
    return {name: m for name, m in model.named_modules() if isinstance(m, kinds)}


def is_plain(module):
    return type(module) in (nn.Linear, nn.Embedding, SwitchLinear)
