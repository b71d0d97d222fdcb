"""Models with fused launches and without equal mlx-lm's on the GPU, bit for bit: tiny ones, whose
weights are made in memory."""

import dataclasses
from unittest import mock

import gpu_data as data
import gpu_models
import gpu_parts
import mlx.core as mx
import mlx_running as run
import pytest
from gpu_running import DRY, assert_same_bits, take_served
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.models.switch_layers import SwitchLinear
from mlx_models import FAMILIES, keep

NSTEPS = 20
MODELS = {
    "llama": {"matvec_added"},
    "qwen3": {"matvec_added"},
    "gemma4_moe": {"gather_gated"},
    "qwen3_5": {"matvec_added"},
    "qwen3_moe": {"matvec_added", "gather_gated"},
}


def steps(model):
    """Logits of a prompt and of tokens one by one, and of the whole without a cache."""
    cache = make_prompt_cache(model)
    prompt = mx.array([run.prompt_of(13 + NSTEPS)])
    yield model(prompt[:, :13], cache=cache)
    for i in range(13, 13 + NSTEPS):
        yield model(prompt[:, i : i + 1], cache=cache)
    yield model(prompt[:, :1])
    yield model(mx.repeat(prompt[:, :1], 3, axis=0))


def make_reference(family):
    """Values as in checkpoints of those, but where mlx-lm's loading changes them."""
    loaded = dataclasses.replace(family, names=keep)
    model = gpu_parts.build(family.config)
    for name, array in tree_flatten(model.parameters()):
        value = gpu_models.make_values(name, array.shape, loaded)
        model.update(tree_unflatten([(name, data.row_by_row(value))]))
    mx.eval(model.parameters())
    model.eval()
    return model


@pytest.mark.parametrize("name", MODELS)
def test_models(name):
    config = FAMILIES[name].config
    reference = make_reference(FAMILIES[name])
    with mock.patch.object(gpu_parts, "fuse"):
        unfused = gpu_parts.packed_model(config, reference)
    fused = gpu_parts.packed_model(config, reference)
    for module in reference.modules():
        if DRY and isinstance(module, SwitchLinear):
            module.__class__ = run.PlainSwitchLinear
    wants = list(steps(reference))
    mx.eval(wants)
    run.assert_lively(wants[0])
    for model, expected in ((unfused, set()), (fused, MODELS[name])):
        take_served()
        for i, (got, want) in enumerate(zip(steps(model), wants, strict=True)):
            assert_same_bits(got, want, f"{name}, step {i}")
        kernels = {kernel for _, kernel, *_ in take_served()}
        assert expected <= kernels or DRY
        if not expected:
            assert not any("added" in kernel or "gated" in kernel for kernel in kernels)
            continue
        gated = {kernel for kernel in kernels if kernel.startswith("matvec_gated")}
        assert gated or DRY or name == "qwen3_moe"
        assert any("normed" in kernel for kernel in kernels) or DRY
