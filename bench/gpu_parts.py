"""What bench_gpu.py measures on a GPU, in processes of their own; each prints one JSON object.

usage: gpu_parts.py matvec | moe | rebuild | load | decode MODEL

Both sides are measured in turns, after a warm-up, and compared bit for bit or token for token.
Weights rotate through more memory than any cache holds. Seconds everywhere, one entry a repeat.

How operations are timed: a long copy is started first, and all operations are handed over while it
runs, so that what launching costs the CPU is not in their time; the copy's own time is taken off.
With MLX_USE_CUDA_GRAPHS=0 kernels run one after another, as those of a model must; with graphs,
MLX's default, independent ones may overlap.
"""

import json
import math
import statistics
import sys
import tempfile
import time
from pathlib import Path

import binade
import mlx.core as mx
from binade.mlx import _ops, modules
from binade.mlx.fusion import fuse
from mlx.utils import tree_flatten, tree_unflatten
from mlx_parts import generate, has_same_bits, random_prompt
from true_models import MODELS, build, packable_shapes

NREPEATS = 11
NBYTES_ROTATED = 640e6
NWEIGHTS_POOL = 1 << 30
NCOPIES = 3  # some milliseconds, longer than it takes to hand over some hundred operations
NWEIGHTS_MEASURED = 1 << 20  # smaller products are nothing but a launch
MIN_PACKED = 256  # a matrix with a smaller side is not packed
MOE = {"experts": 128, "rows": 704, "cols": 2816, "chosen": 8, "tokens": (1, 4), "calls": 24}
REBUILT = (14336, 4096)
REBUILT_MS = (2, 16, 64, 512, 2048)
NPROMPT, NPROMPT_LONG, NDECODED, NRUNS = 40, 2048, 201, 5
NLAYERS_LOADED = 8


def note(*words) -> None:
    print(*words, file=sys.stderr, flush=True)


# ---- Timing


class Stopwatch:
    """Times operations behind a long copy."""

    def __init__(self, pool: mx.array):
        self._pool = pool
        self._idle = mx.ones((8,))
        mx.eval(self._idle)
        self._time([self._idle + 1])
        samples = [self._time([self._idle + 1])[0] for _ in range(NREPEATS)]
        self.copying = statistics.median(samples)

    def _time(self, outputs: list) -> tuple[float, float]:
        """Seconds from the start of the copy to the end of all, and for handing over."""
        copied = self._pool
        for _ in range(NCOPIES):
            copied = mx.negative(copied)
        mx.synchronize()
        started = time.perf_counter()
        mx.async_eval(copied)
        copying = time.perf_counter()
        mx.async_eval(outputs)
        handed = time.perf_counter()
        mx.synchronize()
        return time.perf_counter() - started, handed - copying

    def each(self, sides: dict, count: int) -> dict:
        """Seconds for one of the `count` operations that a side's function returns.

        `late`: handing over took longer than the copy, so that the GPU had to wait.
        """
        for make in sides.values():
            self._time(make())
        row: dict = {side: [] for side in sides}
        late = False
        for _ in range(NREPEATS):
            for side, make in sides.items():
                seconds, handing = self._time(make())
                row[side].append((seconds - self.copying) / count)
                late = late or handing > self.copying
        return row | {"late": late}


def make_pool() -> mx.array:
    """Weights for all shapes: cut anew for each."""
    mx.random.seed(1)
    part = (0.02 * mx.random.normal((NWEIGHTS_POOL // 8,))).astype(mx.bfloat16)
    pool = mx.concatenate([part * (1 + i / 8) for i in range(8)])
    mx.eval(pool)
    return pool


def cut(pool: mx.array, shape: tuple) -> list[mx.array]:
    """So many weights that they pass NBYTES_ROTATED, as far as the pool has them."""
    size = math.prod(shape)
    count = min(math.ceil(NBYTES_ROTATED / 2 / size), pool.size // size)
    weights = [pool[i * size : (i + 1) * size].reshape(shape) for i in range(count)]
    mx.eval(weights)
    return weights


def require_same(got: mx.array, want: mx.array, what: str) -> None:
    if not has_same_bits(got, want):
        raise SystemExit(f"{what}: the products differ")


# ---- Matrices and one row of x


def measured_shapes() -> dict[tuple, list[str]]:
    """{(rows, columns): the models that have it}."""
    shapes: dict[tuple, list[str]] = {}
    for name, config in MODELS.items():
        for shape in packable_shapes(config):
            if len(shape) == 2 and min(shape) >= MIN_PACKED:
                shapes.setdefault(shape, []).append(name)
    sizes = {shape: math.prod(shape) for shape in shapes}
    return {s: shapes[s] for s in shapes if NWEIGHTS_MEASURED <= sizes[s] <= NWEIGHTS_POOL}


def measure_matvec() -> list[dict]:
    pool = make_pool()
    watch = Stopwatch(pool)
    rows = []
    for (n, k), models in measured_shapes().items():
        row = watch_products(watch, cut(pool, (n, k)), 1)
        rows.append({"models": models, "rows": n, "cols": k, **row})
        note(f"matvec {n}x{k}:", show(row))
        mx.clear_cache()
    return rows


def watch_products(watch: Stopwatch, weights: list, m: int) -> dict:
    """Products of x [m, K] with each of the weights, more than once if they are few."""
    n, k = weights[0].shape
    x = mx.random.normal((m, k)).astype(mx.bfloat16)
    packed = [_ops.r4_make(w) for w in weights]
    transposed = [w.T for w in weights]
    mx.eval(x, transposed)
    count = max(len(weights), 8)
    require_same(_ops.r4_matmul(x, packed[0]), x @ transposed[0], f"M = {m}, {n}x{k}")
    sides = {
        "mlx": lambda: [x @ transposed[i % len(weights)] for i in range(count)],
        "r4": lambda: [_ops.r4_matmul(x, packed[i % len(weights)]) for i in range(count)],
    }
    return watch.each(sides, count)


def show(row: dict) -> str:
    texts = [f"{side} {1e6 * statistics.median(row[side]):.2f} us" for side in ("mlx", "r4")]
    return ", ".join(texts) + (" (waited for the CPU)" if row["late"] else "")


# ---- Experts


def measure_moe() -> list[dict]:
    """Gate and up as SwitchGLU asks for them, then down."""
    watch = Stopwatch(make_pool())
    e, n, k = (MOE[key] for key in ("experts", "rows", "cols"))
    gate, up, down = ((0.02 * mx.random.normal(s)) for s in ((e, n, k), (e, n, k), (e, k, n)))
    weights = [w.astype(mx.bfloat16) for w in (gate, up, down)]
    mx.eval(weights)
    packed = [_ops.r4_make(w) for w in weights]
    turned = [w.swapaxes(-1, -2) for w in weights]
    mx.eval(turned)
    rows = []
    for tokens in MOE["tokens"]:
        x = mx.random.normal((1, tokens, 1, 1, k)).astype(mx.bfloat16)
        y = mx.random.normal((1, tokens, MOE["chosen"], 1, n)).astype(mx.bfloat16)
        indices = [choose_experts(tokens) for _ in range(MOE["calls"])]
        mx.eval(x, y, indices)
        for what, one, places in (("gate+up", x, (0, 1)), ("down", y, (2,))):
            theirs, ours = [turned[i] for i in places], [packed[i] for i in places]
            row = watch_experts(watch, one, theirs, ours, indices)
            rows.append({"what": what, "tokens": tokens, **row})
            note(f"experts, {what}, {tokens} tokens:", show(row))
    return rows


def watch_experts(watch: Stopwatch, x: mx.array, turned: list, packed: list, indices: list) -> dict:
    def theirs(rhs):
        return [mx.gather_mm(x, w, rhs_indices=rhs) for w in turned]

    def ours(rhs):
        return _ops.r4_gather_mms(x, packed, rhs_indices=rhs)

    for got, want in zip(ours(indices[0]), theirs(indices[0]), strict=True):
        require_same(got, want, f"experts, x of {x.shape}")
    sides = {
        "mlx": lambda: [y for rhs in indices for y in theirs(rhs)],
        "r4": lambda: [y for rhs in indices for y in ours(rhs)],
    }
    return watch.each(sides, len(indices))


def choose_experts(tokens: int) -> mx.array:
    """Distinct ones for each token, [1, tokens, chosen]."""
    scores = mx.random.uniform(shape=(1, tokens, MOE["experts"]))
    return mx.argsort(scores, axis=-1)[..., : MOE["chosen"]]


# ---- Weights that are rebuilt


def measure_rebuild() -> dict:
    """The rebuilding alone, beside MLX negating BF16; and products that rebuild."""
    pool = make_pool()
    watch = Stopwatch(pool)
    weights = cut(pool, REBUILT)
    packed = [_ops.r4_make(w) for w in weights]
    for w, p in zip(weights, packed, strict=True):
        require_same(_ops.r4_rebuild(p), w, "rebuilt")
    sides = {
        "mlx": lambda: [mx.negative(w) for w in weights],
        "r4": lambda: [_ops.r4_rebuild(p) for p in packed],
    }
    alone = watch.each(sides, len(weights))
    note("rebuild alone:", show(alone))
    products = []
    for m in REBUILT_MS:
        row = watch_products(watch, weights, m)
        products.append({"m": m, **row})
        note(f"rebuild and product, M = {m}:", show(row))
        mx.clear_cache()
    return {"rows": REBUILT[0], "cols": REBUILT[1], "alone": alone, "products": products}


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
    "moe": measure_moe,
    "rebuild": measure_rebuild,
    "load": measure_loading,
    "decode": measure_decoding,
}


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in PARTS:
        raise SystemExit(__doc__)
    mx.set_default_device(mx.gpu)
    print(json.dumps(PARTS[sys.argv[1]](*sys.argv[2:])))
