"""Packed models equal mlx-lm's on the GPU, bit for bit: every family, true shapes, both formats."""

import gc

import gpu_models
import mlx.core as mx
import mlx_running as run
import pytest
from binade.mlx import _ops, modules
from gpu_running import DRY, assert_same_bits, forbid_rebuild, kernels_of, take_served
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.sample_utils import make_logits_processors, make_sampler

FORMATS = [1, 2]
NSTEPS = 8


@pytest.fixture(scope="module", params=list(gpu_models.LARGE))
def case(request, tmp_path_factory):
    case = gpu_models.Case(request.param, tmp_path_factory.mktemp(request.param))
    yield case
    case.forget()
    gc.collect()
    mx.clear_cache()


@pytest.mark.parametrize("pack_format", FORMATS)
def test_logits(case, pack_format):
    """All positions of prompts; then pieces and single tokens with a cache; a batch."""
    reference, packed = case.reference, case.packed(pack_format)
    for length in (1, 7, 40):
        prompt = mx.array([run.prompt_of(length)])
        logits = packed(prompt)
        run.assert_lively(logits)
        assert_same_bits(logits, reference(prompt), f"a prompt of {length}")
    prompt = mx.array([run.prompt_of(48)])
    caches = [make_prompt_cache(model) for model in (reference, packed)]
    for begin, end in ((0, 40), (40, 43), *((i, i + 1) for i in range(43, 48))):
        a, b = (
            model(prompt[:, begin:end], cache=cache)
            for model, cache in zip((reference, packed), caches, strict=True)
        )
        assert_same_bits(b, a, f"tokens {begin} to {end}")
    batch = mx.array([run.prompt_of(11, seed) for seed in range(1, 4)])
    assert_same_bits(packed(batch), reference(batch), "a batch")


@pytest.mark.parametrize("pack_format", FORMATS)
def test_generation(case, pack_format):
    results = []
    for model in (case.reference, case.packed(pack_format)):
        greedy = run.generate_tokens(model, run.prompt_of(13), 32)
        mx.random.seed(7)
        seeded = run.generate_tokens(
            model,
            run.prompt_of(13),
            32,
            sampler=make_sampler(temp=3.0, top_p=0.98, top_k=50),
            logits_processors=make_logits_processors(None, 1.2, 20),
        )
        results.append((greedy, seeded))
    for (tokens, logprobs), (others, others_logprobs) in zip(*results, strict=True):
        assert tokens == others
        run.assert_lively(logprobs)
        assert_same_bits(others_logprobs, logprobs)
    (greedy, _), (seeded, _) = results[0]
    assert greedy != seeded
    assert len(set(seeded)) > 4


def test_decoding_rebuilds_nothing(case):
    """But layers with a bias, which are MLX's own product on a GPU; each call is counted."""
    packed = case.packed(2)
    cache = make_prompt_cache(packed)
    mx.eval(packed(mx.array([run.prompt_of(20)]), cache=cache))
    take_served()
    forbid_rebuild(True)
    for token in run.prompt_of(NSTEPS, 5):
        mx.eval(packed(mx.array([[token]]), cache=cache))
    entries = take_served()
    layers = run.packed_modules(packed).values()
    linear = [layer for layer in layers if isinstance(layer, modules.R4Linear)]
    experts = [layer for layer in layers if isinstance(layer, modules.R4SwitchLinear)]
    embeddings = [layer for layer in layers if isinstance(layer, modules.R4Embedding)]
    tied = not hasattr(getattr(packed, "language_model", packed), "lm_head")
    biased = sum("bias" in layer for layer in linear)
    by_kernel = kernels_of(entries, "matmul")
    by_kernel.pop("rebuild", None)
    by_kernels = len(linear) + tied - (0 if DRY else biased)
    assert sum(by_kernel.values()) == NSTEPS * by_kernels
    gathered = kernels_of(entries, "gather_mm")
    assert "rebuild" not in gathered
    assert sum(gathered.values()) == NSTEPS * len(experts)
    assert sum(kernels_of(entries, "rows").values()) == NSTEPS * len(embeddings)
    assert (len(experts) > 0) == ("moe" in case.name)


def test_another_weight_is_caught(case):
    """One column of one weight, doubled, changes logits."""
    prompt = mx.array([run.prompt_of(7)])
    packed = case.packed(2)
    right = packed(prompt)
    mx.eval(right)
    attention = next(m for m in packed.modules() if "o_proj" in m)
    layer = attention.o_proj
    other = mx.concatenate([layer.weight[:, :1] * 2, layer.weight[:, 1:]], axis=1)
    attention.o_proj = modules.R4Linear(_ops.r4_make(other), layer.get("bias"))
    try:
        with pytest.raises(AssertionError, match="differ, first at"):
            assert_same_bits(packed(prompt), right)
    finally:
        attention.o_proj = layer
    assert_same_bits(packed(prompt), right)
