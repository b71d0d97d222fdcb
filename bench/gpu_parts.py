"""What bench_gpu.py measures on a GPU, in processes of their own; each prints one JSON object.

usage: gpu_parts.py matvec | evaluated | moe | rebuild | prompts | load | decode MODEL

Products are in gpu_products.py. Both sides of a model are measured in turns, after a warm-up, and
compared token for token. Seconds everywhere, one entry a repeat.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

import binade
import mlx.core as mx
from binade.mlx import _ops, modules
from binade.mlx.fusion import fuse
from gpu_products import (
    MIN_PACKED,
    measure_evaluated,
    measure_matvec,
    measure_moe,
    measure_prompts,
    measure_rebuild,
    note,
)
from kernel_times import KernelTimesError
from mlx.utils import tree_flatten, tree_unflatten
from mlx_parts import generate, random_prompt
from true_models import MODELS, build, packable_shapes

NPROMPT, NPROMPT_LONG, NDECODED, NRUNS = 40, 2048, 201, 5
NLAYERS_LOADED = 8


# ---- Loading


def measure_loading() -> dict:
    """Weights in the shapes of Llama 3.1 8B, from the page cache."""
    config = MODELS["Llama 3.1 8B"]
    shapes = [s for s in packable_shapes(config) if s[0] != config["vocab_size"]]
    tensors = {}
    for shape in shapes * NLAYERS_LOADED:
        w = (0.02 * mx.random.normal(shape)).astype(mx.bfloat16)
        tensors[f"model.layers.{len(tensors)}.mlp.up_proj.weight"] = w
    nbytes = sum(w.nbytes for w in tensors.values())
    report: dict = {"nbytes": nbytes}
    with tempfile.TemporaryDirectory() as folder:
        original = Path(folder) / "original"
        original.mkdir()
        file = str(original / "model.safetensors")
        mx.save_safetensors(file, tensors, {"format": "pt"})
        names = list(tensors)
        del tensors, w
        report["mlx"] = time_loads(lambda: list(mx.load(file).values()))
        for number in (1, 2):
            packed = Path(folder) / f"format{number}"
            binade.pack(original, packed, format=number, records=False)
            checkpoint = _ops.Checkpoint(str(packed))
            report[f"format{number}"] = time_loads(
                lambda c=checkpoint: [c.load_r4(name) for name in names]
            )
    return report


def time_loads(load) -> dict:
    """Seconds; memory beyond what there was, at most and kept. The first load is a warm-up."""
    report: dict = {"seconds": [], "peak": [], "kept": []}
    for i in range(NRUNS + 1):
        mx.synchronize()
        mx.clear_cache()
        mx.reset_peak_memory()
        before, started = mx.get_active_memory(), time.perf_counter()
        loaded = load()
        mx.eval([a for a in loaded if isinstance(a, mx.array)])
        mx.synchronize()
        if i:
            report["seconds"].append(time.perf_counter() - started)
            report["peak"].append(mx.get_peak_memory() - before)
            report["kept"].append(mx.get_active_memory() - before)
        del loaded
    note("load:", report)
    return report


# ---- Whole models


def random_model(config: dict):
    """Values that keep activations finite; made one by one, so that only weights take memory."""
    mx.random.seed(2)
    model = build(config)
    for name, array in tree_flatten(model.parameters()):
        if array.ndim == 1:
            value = mx.ones(array.shape, mx.bfloat16)
        else:
            # A tied embedding of more weight would make each token call for itself again.
            scale = (0.3 if "embed" in name else 1) * array.shape[-1] ** -0.5
            value = (scale * mx.random.normal(array.shape)).astype(mx.bfloat16)
        mx.eval(value)
        model.update(tree_unflatten([(name, value)]))
    model.eval()
    mx.clear_cache()
    return model


def packed_model(config: dict, reference):
    """The same model with packed weights; what is not packed is shared."""
    model = build(config)
    model.update(reference.parameters())
    for name, module in list(model.named_modules()):
        if modules.can_be_packed(module) and min(module.weight.shape[-2:]) >= MIN_PACKED:
            packed = modules.packed_like(module, _ops.r4_make(module.weight))
            model.update_modules(tree_unflatten([(name, packed)]))
    fuse(model)
    model.eval()
    mx.clear_cache()
    return model


def measure_decoding(name: str) -> dict:
    config = MODELS[name]
    started = time.perf_counter()
    before = mx.get_active_memory()
    models = {"mlx": random_model(config)}
    nbytes = {"mlx": mx.get_active_memory() - before}
    models["r4"] = packed_model(config, models["mlx"])
    nbytes["r4"] = mx.get_active_memory() - before - nbytes["mlx"]
    note(f"{name}: both models made in {time.perf_counter() - started:.0f} s, bytes: {nbytes}")
    report: dict = {"model": name, "sides": {}}
    for side, model in models.items():
        rows: dict = {"decode": [], "first": [], "first_long": [], "nbytes": nbytes[side]}
        report["sides"][side] = rows
        for prompt in (NPROMPT, NPROMPT_LONG):
            generate(model, random_prompt(prompt), 8)
        mx.clear_cache()
        mx.reset_peak_memory()
        active = mx.get_active_memory()
        generate(model, random_prompt(NPROMPT_LONG), 8)
        rows["working"] = mx.get_peak_memory() - active
    answers: dict = {"mlx": [], "r4": []}
    long_answers: dict = {"mlx": [], "r4": []}
    for _ in range(NRUNS):
        for side, model in models.items():
            rows = report["sides"][side]
            tokens, first, each = generate(model, random_prompt(NPROMPT), NDECODED)
            others, first_long, _ = generate(model, random_prompt(NPROMPT_LONG), 8)
            rows["decode"].append(each)
            rows["first"].append(first)
            rows["first_long"].append(first_long)
            answers[side].append(tokens)
            long_answers[side].append(others)
            note(f"{name}, {side}: {1 / each:.1f} tokens/s, first after {1e3 * first:.1f} ms")
    # Behind long prompts MLX's own BF16 does not always repeat itself.
    report["mlx_repeats_itself"] = True
    for both in (answers, long_answers):
        repeats = all(answer == both["mlx"][0] for answer in both["mlx"])
        report["mlx_repeats_itself"] &= repeats
        if repeats and any(answer != both["mlx"][0] for answer in both["r4"]):
            raise SystemExit(f"{name}: the tokens differ")
    note(f"{name}: MLX's BF16 repeats itself: {report['mlx_repeats_itself']}")
    report["distinct_tokens"] = len(set(answers["mlx"][0]))
    return report


PARTS = {
    "matvec": measure_matvec,
    "evaluated": measure_evaluated,
    "moe": measure_moe,
    "rebuild": measure_rebuild,
    "prompts": measure_prompts,
    "load": measure_loading,
    "decode": measure_decoding,
}


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in PARTS:
        raise SystemExit(__doc__)
    mx.set_default_device(mx.gpu)
    started = time.perf_counter()
    try:
        result = PARTS[sys.argv[1]](*sys.argv[2:])
    except KernelTimesError as error:
        raise SystemExit(f"gpu_parts.py: {error}") from None
    note(f"{sys.argv[1]}: {time.perf_counter() - started:.0f} s")
    print(json.dumps(result))
