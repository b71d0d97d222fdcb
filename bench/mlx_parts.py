"""What bench_cpu.py measures in processes of their own; each prints one JSON object.

usage: mlx_parts.py products
       mlx_parts.py transcode PACKED
       mlx_parts.py load ORIGINAL|PACKED
       mlx_parts.py generate ORIGINAL PACKED NREPEATS
       mlx_parts.py profile PACKED

BINADE_CPU and BINADE_NUM_THREADS in the environment choose kernels and threads. Both sides are
measured in turns, after a warm-up. Seconds everywhere; lists hold one entry a repeat.
"""

import json
import resource
import sys
import time

import mlx.core as mx
import mlx_lm
import numpy as np
from binade.mlx import _ops, modules, r4
from mlx_lm.generate import generate_step
from mlx_lm.models.cache import make_prompt_cache

SIZE = 4096
MS = (1, 32, 128)
NWEIGHTS_ARRAYS = 4  # taken in turns, 100 MB and more: none stays in the cache
NREPEATS = 9
NPROMPT_LONG, NPROMPT_SHORT = 512, 16
NDECODED = 48
NSTEPS = 41


def timed(function) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def has_same_bits(a: mx.array, b: mx.array) -> bool:
    return bool(mx.array_equal(a.view(mx.uint16), b.view(mx.uint16)))


# ---- Products


def measure_products() -> dict:
    mx.random.seed(1)
    weights = [
        (0.02 * mx.random.normal((SIZE, SIZE))).astype(mx.bfloat16) for _ in range(NWEIGHTS_ARRAYS)
    ]
    packed = [_ops.r4_make(w) for w in weights]
    report = {}
    for m in MS:
        x = mx.random.normal((m, SIZE)).astype(mx.bfloat16)
        mx.eval(x, weights)
        for w, p in zip(weights, packed, strict=True):
            if not has_same_bits(_ops.r4_matmul(x, p), mx.matmul(x, w.T)):
                raise SystemExit(f"M = {m}: the products differ")
        report[m] = measure_product(x, weights, packed)
    return report


def measure_product(x: mx.array, weights: list, packed: list) -> dict:
    mlx, ours = [], []
    for _ in range(NREPEATS):
        mlx.append(mean_of(lambda i: mx.matmul(x, weights[i].T)))
        ours.append(mean_of(lambda i: _ops.r4_matmul(x, packed[i])))
    return {"mlx": mlx, "r4": ours}


def mean_of(product) -> float:
    def run():
        for i in range(NWEIGHTS_ARRAYS):
            mx.eval(product(i))

    return timed(run) / NWEIGHTS_ARRAYS


# ---- Loading


def measure_transcoding(path: str) -> dict:
    checkpoint = _ops.Checkpoint(path)
    infos = {name: checkpoint.info(name) for name in checkpoint.names()}
    packed = [name for name, info in infos.items() if info["packed"]]

    def run():
        for name in packed:
            checkpoint.load_r4(name)

    run()
    seconds = [timed(run) for _ in range(NREPEATS)]
    return {"nbytes": sum(infos[name]["nbytes"] for name in packed), "seconds": seconds}


def peak_nbytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )


def measure_loading(path: str) -> dict:
    """One load in a new process: seconds, by how much the peak of memory rose, what stays."""
    is_packed = _ops.Checkpoint(path).format > 0
    before = peak_nbytes()
    started = time.perf_counter()
    model = (r4.load if is_packed else mlx_lm.load)(path)[0]
    seconds = time.perf_counter() - started
    kept = sum(array.nbytes for _, array in mlx_arrays(model))
    return {"seconds": seconds, "peak": peak_nbytes() - before, "kept": kept}


def mlx_arrays(model) -> list:
    """The arrays of a model, packed weights as they are kept; a tied one once."""
    arrays = {}
    for name, module in model.named_modules():
        for key, value in module.items():
            if isinstance(value, mx.array):
                arrays[f"{name}.{key}"] = value
            elif isinstance(value, tuple) and value and isinstance(value[0], mx.array):
                arrays.update({f"{name}.{key}.{i}": array for i, array in enumerate(value)})
    return list(arrays.items())


# ---- Generation


def random_prompt(n: int) -> mx.array:
    return mx.array(np.random.default_rng(n).integers(100, 40000, n))


def generate(model, prompt: mx.array, ntokens: int) -> tuple[list, float, float]:
    """Tokens, seconds to the first of them, and seconds for each further one."""
    tokens, started, first = [], time.perf_counter(), 0.0
    for token, _ in generate_step(prompt, model, max_tokens=ntokens):
        first = first or time.perf_counter()
        tokens.append(token)
    return tokens, first - started, (time.perf_counter() - first) / (ntokens - 1)


def measure_generation(original: str, packed: str, nrepeats: int) -> dict:
    sides = {"mlx": mlx_lm.load(original)[0], "r4": r4.load(packed)[0]}
    _ops.forbid_rebuild(True)
    report = {side: {"prompt": [], "decode_long": [], "decode_short": []} for side in sides}
    for model in sides.values():
        generate(model, random_prompt(NPROMPT_SHORT), 8)
    for _ in range(nrepeats):
        answers = []
        for side, model in sides.items():
            long, prompt_seconds, decode_long = generate(
                model, random_prompt(NPROMPT_LONG), NDECODED
            )
            short, _, decode_short = generate(model, random_prompt(NPROMPT_SHORT), NDECODED)
            answers.append(long + short)
            report[side]["prompt"].append(prompt_seconds)
            report[side]["decode_long"].append(decode_long)
            report[side]["decode_short"].append(decode_short)
        if answers[0] != answers[1]:
            raise SystemExit("the tokens differ")
    return report


# ---- Where the time goes


def measure_profile(path: str) -> dict:
    """Of a token behind a short and a long prompt, and of the long prompt itself: building MLX's
    graph in Python, computing it, and of that the packed products and the attention, each alone.

    Tokens are computed one by one, without generation's overlap of building and computing.
    """
    model = r4.load(path)[0]
    linear = [m for m in model.modules() if isinstance(m, modules.R4Linear)]
    head = [m for m in model.modules() if isinstance(m, modules.R4Embedding)]
    report = {}
    for kind, n in (("short", NPROMPT_SHORT), ("long", NPROMPT_LONG)):
        cache = make_prompt_cache(model)
        mx.eval(model(random_prompt(n)[None], cache=cache))
        report[kind] = time_steps(model, cache)
        report[kind]["products"] = median_of(lambda: run_products(linear + head, 1))
        report[kind]["attention"] = median_of(lambda c=cache: run_attention(model, c, 1))
    few = 3
    report["prompt"] = {
        "build": 0.0,  # of thousands of milliseconds
        "compute": median_of(lambda: run_prompt(model), few),
        "products": median_of(lambda: run_products(linear, NPROMPT_LONG), few),
        "attention": median_of(lambda: run_attention(model, cache, NPROMPT_LONG), few),
    }
    return report


def run_prompt(model) -> None:
    """As generation does it: the head, for all but the last token, is not computed."""
    cache = make_prompt_cache(model)
    model(random_prompt(NPROMPT_LONG)[None], cache=cache)
    mx.eval([layer.state for layer in cache])


def time_steps(model, cache) -> dict:
    built, computed = [], []
    for _ in range(NSTEPS):
        started = time.perf_counter()
        token = step(model, cache)
        built.append(time.perf_counter() - started)
        computed.append(timed(lambda t=token: mx.eval(t)))
        for layer in cache:
            layer.trim(1)
    return {"build": float(np.median(built)), "compute": float(np.median(computed))}


def step(model, cache) -> mx.array:
    logits = model(mx.array([[7]]), cache=cache)[:, -1]
    return mx.argmax(logits - mx.logsumexp(logits, axis=-1, keepdims=True), axis=-1)


def run_products(layers: list, m: int) -> None:
    outputs = []
    for layer in layers:
        x = mx.ones((1, m, layer._r4.shape[1]), mx.bfloat16)
        outputs.append(layer.as_linear(x) if hasattr(layer, "as_linear") else layer(x))
    mx.eval(outputs)


def run_attention(model, cache, m: int) -> None:
    outputs = []
    for layer, kept in zip(model.layers, cache, strict=True):
        attention = layer.self_attn
        keys, values = (array[..., : kept.offset, :] for array in kept.state)
        q = mx.ones((1, attention.n_heads, m, keys.shape[-1]), mx.bfloat16)
        outputs.append(
            mx.fast.scaled_dot_product_attention(
                q, keys, values, scale=attention.scale, mask="causal" if m > 1 else None
            )
        )
    mx.eval(outputs)


def median_of(function, n: int = NSTEPS) -> float:
    function()
    return float(np.median([timed(function) for _ in range(n)]))


PARTS = {
    "products": measure_products,
    "transcode": measure_transcoding,
    "load": measure_loading,
    "generate": lambda original, packed, n: measure_generation(original, packed, int(n)),
    "profile": measure_profile,
}


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in PARTS:
        raise SystemExit(__doc__)
    mx.set_default_device(mx.cpu)
    print(json.dumps(PARTS[sys.argv[1]](*sys.argv[2:])))
