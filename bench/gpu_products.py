"""Products on a GPU, of MLX's BF16 and of packed weights: parts of gpu_parts.py.

Both sides are measured in turns, after a warm-up, and compared bit for bit first. Weights rotate
through more memory than any cache holds. Seconds everywhere, one entry a round.

The time of an operation is that of its kernels by the GPU's clock (kernel_times.py), the sum where
it launches several; what lies between kernels is in none. A round is some operations, one after
another, and counts with its median. That needs MLX_USE_CUDA_GRAPHS=0, with which kernels do not
overlap. measure_evaluated takes the time of MLX's evaluation of many products by the CPU's clock.
"""

import math
import statistics
import sys
import time
from collections.abc import Callable

import mlx.core as mx
from binade.mlx import _ops
from kernel_times import Recorder, median_operation
from mlx_lm.models.switch_layers import _gather_sort
from mlx_parts import has_same_bits
from true_models import MODELS, packable_shapes

# Operation number i of a side: its outputs, not evaluated.
Side = Callable[[int], list[mx.array]]

NROUNDS = 7
NBYTES_ROTATED = 256e6  # five times the L2 of an H200
NWEIGHTS_POOL = 1 << 30
NOPERATIONS = 8  # of a round, at least
NEVALUATED = 64  # products of one evaluation, at least
NWEIGHTS_MEASURED = 1 << 20  # smaller products are nothing but a launch
MIN_PACKED = 256  # a matrix with a smaller side is not packed
NAME_NCHARS = 60
MOE = {"experts": 128, "rows": 704, "cols": 2816, "chosen": 8}
MOE_TOKENS, MOE_CALLS = (1, 4), 24
REBUILT = (14336, 4096)
REBUILT_MS = (2, 16, 64, 512, 2048)
PROMPT_MS = (2, 4, 8, 16, 32, 64)
LONG_PROMPT_MS = (128, 256, 512, 2048)
# Those with more rows of x than PROMPT_MS; no head, of which a prompt needs one row.
LONG_PROMPT_SHAPES = (
    (14336, 4096),
    (4096, 14336),
    (4096, 4096),
    (1024, 4096),
    (8192, 3072),
    (15360, 3840),
    (3840, 15360),
    (2560, 10240),
    (2816, 8192),
    (12288, 4096),
)
MOE_PROMPT_TOKENS, MOE_PROMPT_CALLS = (64, 512, 4096), 4


def note(*words) -> None:
    print(*words, file=sys.stderr, flush=True)


# ---- Timing


def run(side: Side, count: int) -> None:
    """One by one, so that kernels run in the order of operations."""
    for i in range(count):
        mx.async_eval(side(i))
    mx.synchronize()


def time_products(recorder: Recorder, sides: dict[str, Side], count: int, what: str) -> dict:
    """Compares them, then times kernels. `is_repeated`: MLX gave its own bits again."""
    is_repeated = require_same(sides, what)
    return {"is_repeated": is_repeated, **time_kernels(recorder, sides, count, what)}


def time_kernels(recorder: Recorder, sides: dict[str, Side], count: int, what: str) -> dict:
    """Seconds of the median of `count` operations, a round each; their kernels' names.

    `is_even`: kernels could be told apart by operation, else the mean stands for the median.
    """
    row: dict = {"is_even": True, "kernels": {}}
    for name, side in sides.items():
        run(side, count)
        row[name] = []
    recorder.start()
    for _ in range(NROUNDS):
        for name, side in sides.items():
            run(side, count)
            seconds, kernels, is_even = median_operation(recorder.take(), count)
            row[name].append(seconds)
            row["kernels"][name] = [kernel[:NAME_NCHARS] for kernel in kernels]
            row["is_even"] &= is_even
    recorder.stop()
    note(f"{what}:", show(row))
    return row


def require_same(sides: dict[str, Side], what: str) -> bool:
    """Ends the program if the bits differ and MLX's own repeat themselves; whether they do."""

    def is_wanted(outputs: list[mx.array]) -> bool:
        return all(has_same_bits(a, b) for a, b in zip(outputs, want, strict=True))

    want = sides["mlx"](0)
    mx.eval(want)
    if is_wanted(sides["r4"](0)):
        return True
    if is_wanted(sides["mlx"](0)):
        raise SystemExit(f"{what}: the products differ")
    note(f"{what}: MLX's BF16 does not repeat its own bits")
    return False


def show(row: dict) -> str:
    texts = [f"{side} {1e6 * statistics.median(row[side]):.2f} us" for side in ("mlx", "r4")]
    return ", ".join(texts) + ("" if row.get("is_even", True) else " (means)")


# ---- Weights


def make_pool() -> mx.array:
    """Weights for all shapes: cut anew for each."""
    mx.random.seed(1)
    part = (0.02 * mx.random.normal((NWEIGHTS_POOL // 8,))).astype(mx.bfloat16)
    pool = mx.concatenate([part * (1 + i / 8) for i in range(8)])
    mx.eval(pool)
    return pool


class Weights:
    """So many of one shape that they pass NBYTES_ROTATED, as far as the pool has them."""

    def __init__(self, pool: mx.array, shape: tuple[int, int]):
        size = math.prod(shape)
        count = min(math.ceil(NBYTES_ROTATED / 2 / size), pool.size // size)
        self.shape = shape
        self.plain = [pool[i * size : (i + 1) * size].reshape(shape) for i in range(count)]
        mx.eval(self.plain)
        self.packed = [_ops.r4_make(w) for w in self.plain]
        self.turned = [w.T for w in self.plain]
        mx.eval(self.turned)

    def products(self, m: int) -> dict[str, Side]:
        """Of x [m, K] with each in turn."""
        count = len(self.plain)
        x = mx.random.normal((m, self.shape[1])).astype(mx.bfloat16)
        mx.eval(x)
        return {
            "mlx": lambda i: [x @ self.turned[i % count]],
            "r4": lambda i: [_ops.r4_matmul(x, self.packed[i % count])],
        }

    def time(self, recorder: Recorder, m: int) -> dict:
        n, k = self.shape
        what, count = f"M = {m}, {n}x{k}", max(len(self.plain), NOPERATIONS)
        return time_products(recorder, self.products(m), count, what)


def measured_shapes() -> dict[tuple[int, int], list[str]]:
    """{(rows, columns): the models that have it}."""
    shapes: dict[tuple, list[str]] = {}
    for name, config in MODELS.items():
        for shape in packable_shapes(config):
            if len(shape) == 2 and min(shape) >= MIN_PACKED:
                shapes.setdefault(shape, []).append(name)
    sizes = {shape: math.prod(shape) for shape in shapes}
    return {s: shapes[s] for s in shapes if NWEIGHTS_MEASURED <= sizes[s] <= NWEIGHTS_POOL}


# ---- Matrices


def measure_matvec() -> list[dict]:
    recorder, pool, rows = Recorder(), make_pool(), []
    for (n, k), models in measured_shapes().items():
        row = Weights(pool, (n, k)).time(recorder, 1)
        rows.append({"models": models, "rows": n, "cols": k, **row})
        mx.clear_cache()
    return rows


def measure_evaluated() -> list[dict]:
    """Products with one row of x, all in one evaluation; seconds for each of them."""
    pool, rows = make_pool(), []
    for n, k in measured_shapes():
        weights = Weights(pool, (n, k))
        sides = weights.products(1)
        count = max(len(weights.plain), NEVALUATED)
        row: dict = {side: [] for side in sides}
        for i in range(NROUNDS + 1):
            for name, side in sides.items():
                seconds = time_evaluation(side, count)
                if i:  # the first is a warm-up
                    row[name].append(seconds)
        rows.append({"rows": n, "cols": k, **row})
        note(f"one evaluation, {n}x{k}:", show(row))
        mx.clear_cache()
    return rows


def time_evaluation(side: Side, count: int) -> float:
    outputs = [y for i in range(count) for y in side(i)]
    mx.synchronize()
    started = time.perf_counter()
    mx.eval(outputs)
    return (time.perf_counter() - started) / count


def measure_rebuild() -> dict:
    """The rebuilding alone, beside MLX negating BF16; and products with what was rebuilt."""
    recorder = Recorder()
    weights = Weights(make_pool(), REBUILT)
    plain, packed, count = weights.plain, weights.packed, len(weights.plain)
    for w, p in zip(plain, packed, strict=True):
        if not has_same_bits(_ops.r4_rebuild(p), w):
            raise SystemExit("the rebuilt weight differs")
    alone: dict[str, Side] = {
        "mlx": lambda i: [mx.negative(plain[i % count])],
        "r4": lambda i: [_ops.r4_rebuild(packed[i % count])],
    }
    report: dict = {"rows": REBUILT[0], "cols": REBUILT[1], "products": []}
    report["alone"] = time_kernels(recorder, alone, max(count, NOPERATIONS), "rebuilding")
    for m in REBUILT_MS:
        x = mx.random.normal((m, REBUILT[1])).astype(mx.bfloat16)
        mx.eval(x)
        sides: dict[str, Side] = {
            "mlx": lambda i, x=x: [x @ weights.turned[i % count]],
            "r4": lambda i, x=x: [x @ _ops.r4_rebuild(packed[i % count]).T],
        }
        row = time_products(recorder, sides, max(count, NOPERATIONS), f"rebuilding, M = {m}")
        report["products"].append({"m": m, **row})
        mx.clear_cache()
    return report


# ---- Experts


class Experts:
    """Gate, up and down of a layer of MOE."""

    def __init__(self):
        e, n, k = (MOE[key] for key in ("experts", "rows", "cols"))
        mx.random.seed(1)
        shapes = ((e, n, k), (e, n, k), (e, k, n))
        weights = [(0.02 * mx.random.normal(shape)).astype(mx.bfloat16) for shape in shapes]
        mx.eval(weights)
        self.packed = [_ops.r4_make(w) for w in weights]
        self.turned = [w.swapaxes(-1, -2) for w in weights]
        mx.eval(self.turned)

    def products(self, x: mx.array, which: slice, indices: list, **how) -> dict[str, Side]:
        """Of x with some of the three, for other experts each time."""
        turned, packed = self.turned[which], self.packed[which]
        return {
            "mlx": lambda i: [mx.gather_mm(x, w, rhs_indices=indices[i], **how) for w in turned],
            "r4": lambda i: _ops.r4_gather_mms(x, packed, rhs_indices=indices[i], **how),
        }


GATE_UP, DOWN = slice(0, 2), slice(2, 3)


def choose_experts(tokens: int) -> mx.array:
    """Distinct ones for each token, [1, tokens, chosen]."""
    scores = mx.random.uniform(shape=(1, tokens, MOE["experts"]))
    return mx.argsort(scores, axis=-1)[..., : MOE["chosen"]]


def measure_moe() -> list[dict]:
    """Gate and up as SwitchGLU asks for them, then down, for few tokens."""
    recorder, experts, rows = Recorder(), Experts(), []
    for tokens in MOE_TOKENS:
        x = mx.random.normal((1, tokens, 1, 1, MOE["cols"])).astype(mx.bfloat16)
        y = mx.random.normal((1, tokens, MOE["chosen"], 1, MOE["rows"])).astype(mx.bfloat16)
        indices = [choose_experts(tokens) for _ in range(MOE_CALLS)]
        mx.eval(x, y, indices)
        for what, one, which in (("gate+up", x, GATE_UP), ("down", y, DOWN)):
            sides = experts.products(one, which, indices)
            text = f"experts, {what}, tokens: {tokens}"
            row = time_products(recorder, sides, MOE_CALLS, text)
            rows.append({"what": what, "tokens": tokens, **row})
    return rows


# ---- Prompts


def measure_prompts() -> dict:
    recorder = Recorder()
    return {"linear": measure_rows(recorder), "experts": measure_sorted(recorder)}


def measure_rows(recorder: Recorder) -> list[dict]:
    """Several rows of x, for every shape; many, for some."""
    shapes, pool, rows = measured_shapes(), make_pool(), []
    if unknown := set(LONG_PROMPT_SHAPES) - set(shapes):
        raise SystemExit(f"no model has these shapes: {unknown}")
    for (n, k), models in shapes.items():
        weights = Weights(pool, (n, k))
        for m in PROMPT_MS + (LONG_PROMPT_MS if (n, k) in LONG_PROMPT_SHAPES else ()):
            row = weights.time(recorder, m)
            rows.append({"models": models, "rows": n, "cols": k, "m": m, **row})
        mx.clear_cache()
    return rows


def measure_sorted(recorder: Recorder) -> list[dict]:
    """Gate, up and down together, for tokens that are sorted by expert, as SwitchGLU sorts many."""
    experts, rows = Experts(), []
    for tokens in MOE_PROMPT_TOKENS:
        x = mx.random.normal((1, tokens, 1, 1, MOE["cols"])).astype(mx.bfloat16)
        items = [_gather_sort(x, choose_experts(tokens))[:2] for _ in range(MOE_PROMPT_CALLS)]
        y = mx.random.normal((tokens * MOE["chosen"], 1, MOE["rows"])).astype(mx.bfloat16)
        mx.eval(y, items)
        indices = [item[1] for item in items]
        first = [experts.products(item[0], GATE_UP, indices, sorted_indices=True) for item in items]
        down = experts.products(y, DOWN, indices, sorted_indices=True)
        sides: dict[str, Side] = {
            name: lambda i, name=name, first=first, down=down: first[i][name](i) + down[name](i)
            for name in down
        }
        row = time_products(recorder, sides, MOE_PROMPT_CALLS, f"sorted experts, tokens: {tokens}")
        rows.append({"tokens": tokens, **row})
        mx.clear_cache()
    return rows
