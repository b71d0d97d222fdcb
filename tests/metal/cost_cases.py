"""The products that costs.py counts: by our kernel, by the package's and by MLX's, from the same
weights, run twice each. All that compute the same thing must agree, or nothing is counted."""

import dataclasses
import functools

import mlx.core as mx
import mlx_operands as operands
import numpy as np
import oracle
import package
import r4_streams
from mlx_operands import to_mlx
from products import Mlx
from r4_kernels import arrays, table
from r4_loading import Loading
from r4_products import Gpu, pack, product, rule

OURS, PACKAGE, MLX = WHOSE = ("ours", "package", "MLX BF16")
MODES = ({"counted": True}, {"checked": True})
M4_MAX = Gpu(16, b"s", False)
NEXPERTS = 4
# Of W or of its streams: bytes of weights, and all else that is needed to read them.
BYTES = ("slices", "raw", "codes", "idx", "bits", "weights")
SIDE = ("rows", "escapes", "facts", "flags", "esc", "tbl", "row_esc", "meta", "row_starts", "roff",
        "table", "code_starts", "esc_starts")  # fmt: skip


@dataclasses.dataclass
class Measured:
    """Reports of the launches of one product, and the names of their buffers."""

    whose: str
    counted: list
    checked: list
    names: list
    nweights: int
    nbytes: int  # of W in memory, or of the streams
    result: np.ndarray

    def loaded(self, loads):
        """Sums over buffers: bytes of weights, what stands beside them, x and all else."""
        sums = [0.0, 0.0, 0.0]
        for name, n in loads.items():
            name = name.removesuffix("_0").removesuffix("_1")
            sums[0 if name in BYTES else 1 if name in SIDE else 2] += n
        return sums


@dataclasses.dataclass
class Case:
    """make() gives x and W; the others the result, of a run and what make() gave."""

    make: object
    ours: object = None
    package: object = None
    mlx: tuple = ()  # the library, the product, the number of W's buffer
    loads: str = ""  # what R4 is made from

    @property
    def is_loading(self):
        return bool(self.loads)

    @property
    def whose(self):
        return [
            w for w, what in zip(WHOSE, (self.ours, self.package, self.mlx), strict=True) if what
        ]

    @functools.cached_property
    def given(self):
        return self.make()

    def nbytes(self, w, streams):
        """Of what R4 is made from."""
        if not self.is_loading:
            return 0
        read = [w] if self.loads == "bf16" else dataclasses.astuple(streams)
        return sum(a.nbytes for a in read)

    def title(self, name):
        x, w, _ = self.given
        return f"{name}: {len(x)} x {len(w)} x {w.shape[1]}"

    def __call__(self, whose, **more):
        how = {OURS: measure_ours, PACKAGE: measure_package, MLX: measure_mlx}[whose]
        return how(self, *self.given, **more)


# ---- Whose


class Named(Loading):
    """Ours, with the names of each launch's buffers."""

    def __init__(self, **how):
        super().__init__(M4_MAX, **how)
        self.names = []

    def run(self, plan, *given):
        entry = table()[plan.kernel.decode()]
        self.names.append([n for n, *_ in [*arrays(entry.inputs), *arrays(entry.outputs)]])
        return super().run(plan, *given)


def measure_ours(case, x, w, streams, modes=MODES, replace=None):
    runs = [Named(**mode, replace=replace) for mode in modes]
    weight = pack(w)
    held = streams if case.is_loading else weight
    results = [case.ours(run, x, w, held, weight) for run in runs]
    assert (results[0] == results[-1]).all()
    in_memory = (weight.slices, weight.rows, weight.escapes)
    nbytes = case.nbytes(w, streams) or sum(a.nbytes for a in in_memory)
    return Measured(OURS, reports_of(runs, "counted"), reports_of(runs, "checked"), runs[0].names,
                    w.size, nbytes, results[0])  # fmt: skip


def reports_of(runs, mode):
    return [report for run in runs if run.kernels.how[mode] for report in run.reports]


def measure_package(case, x, w, streams):
    runs = [package.Package(mode) for mode in MODES]
    results = []
    for run in runs:
        linear = run.load(streams)
        if not case.is_loading:
            run.launches.clear()
        results.append(case.package(run, x, w, linear))
    assert (results[0] == results[1]).all()
    nbytes = case.nbytes(w, streams) or package.nbytes(linear)
    counted, checked = ([report for report, _ in run.launches] for run in runs)
    names = [n for _, n in runs[0].launches]
    return Measured(PACKAGE, counted, checked, names, w.size, nbytes, results[0])


def measure_mlx(case, x, w, streams):
    library, multiply_by_mlx, w_number = case.mlx
    libraries = {library: oracle.library(library, counted=True)}
    runs = [Mlx(libraries=libraries), Mlx(checked=True)]
    results = [multiply_by_mlx(run, x, w) for run in runs]
    assert (results[0] == results[1]).all()
    counted, checked = (run.reports for run in runs)
    first = ["weights" if i == w_number else str(i) for i in range(31)]
    # A second launch adds parts.
    names = [first, *[["sums"] * 31] * (len(checked) - 1)]
    return Measured(MLX, counted, checked, names, w.size, 2 * w.size, results[0])


# ---- Operands


class Middle:
    """Chooses widths of streams as packing would for such weights."""

    def choice(self, widths):
        return next(w for w in (19, 1, widths[0]) if w in widths)


def operands_of(m, n, k, form="rice"):
    def make():
        x, w = operands.operands(operands.normal, m, n, k)
        return x, w, getattr(r4_streams, form)(Middle(), w)

    return make


def experts_of(w):
    return w.reshape(NEXPERTS, -1, w.shape[1])


def each_expert(x):
    return np.arange(len(x), dtype=np.uint32) * NEXPERTS // len(x)


def split_experts(weight):
    """gate and up of every expert."""
    half = weight.nrows // NEXPERTS // 2
    whole = dataclasses.replace(weight, experts=NEXPERTS, nrows=2 * half)
    return [whole.view(0, half), whole.view(half, half)]


# ---- Products


def multiply(run, x, w, _, weight):
    return run.matmul(x, [weight])[0].reshape(len(x), -1)


def package_multiply(run, x, w, linear):
    return run.call(linear._rows, to_mlx(x))


def package_tiles(run, x, w, linear):
    return run.call(linear._gather_mm, to_mlx(x), mx.zeros(len(x), mx.uint32), len(w), len(w))


def gather(run, x, w, _, weight):
    """Each expert once."""
    items = each_expert(x)
    return np.hstack(
        run.gather(x, split_experts(weight), items, np.arange(len(x), dtype=np.uint32))
    )


def package_gather(run, x, w, linear):
    items, n = mx.array(each_expert(x)), len(w) // NEXPERTS
    xs = mx.arange(len(x), dtype=mx.uint32)
    return run.call(linear._gather, to_mlx(x), xs, items, n, n, split=n // 2)


def mlx_gather(run, x, w):
    return run.gather_mv(x, experts_of(w), [*range(len(x))], list(each_expert(x)))


def sorted_experts(run, x, w, _, weight):
    return np.hstack(run.gather(x, split_experts(weight), each_expert(x), is_sorted=True))


def package_sorted(run, x, w, linear):
    items, n = mx.array(each_expert(x)), len(w) // NEXPERTS
    made = [run.call(linear._gather_mm, to_mlx(x), items, n // 2, n, r0) for r0 in (0, n // 2)]
    return np.hstack(made)


def mlx_sorted(run, x, w):
    return run.gather_rhs(x, experts_of(w), list(each_expert(x)))


def rebuild(run, x, w, _, weight):
    return run.rebuild(weight)


def package_rebuild(run, x, w, linear):
    return run.call(linear.dense)


def take_rows(run, x, w, _, weight):
    return run.take_rows(weight, np.arange(len(w), dtype=np.uint32))


# ---- Loading


def load_with(name):
    def load(run, x, w, streams, weight):
        made = getattr(run, f"from_{name}")(w if name == "bf16" else streams, weight.base)
        made = made if isinstance(made, tuple) else (made, False)
        assert not made[1]
        assert (made[0].slices == weight.slices).all()
        return made[0].slices

    return load


def package_load(run, x, w, linear):
    return np.array(linear._a["codes"])


def load_by_ours(name):
    return Case(operands_of(1, 256, 2048, "fixed" if name == "fixed" else "rice"),
                load_with(name), package_load if name == "rice" else None, loads=name)  # fmt: skip


def mlx_tiles(run, x, w):
    chosen = rule(M4_MAX, product(x, len(w)))
    return run.fused(x, w, (chosen.bm, chosen.bn, chosen.bk, chosen.wm, chosen.wn))


MATVEC = ("gemv", lambda run, x, w: run.gemv(x, w).reshape(1, -1), 0)
GATHER = ("gemv", mlx_gather, 0)
WIDE = ("gemv", lambda run, x, w: run.wide(x, w), 0)
TILES = ("fused", mlx_tiles, 1)
SPLIT = ("splitk", lambda run, x, w: run.split(x, w), 1)
SORTED = ("gather", mlx_sorted, 1)
CASES = {
    "matvec": Case(operands_of(1, 256, 2048), multiply, package_multiply, MATVEC),
    "matvec, K <= 64": Case(operands_of(1, 512, 64), multiply, None, MATVEC),
    "matvec, K >= 16 N": Case(operands_of(1, 64, 4096), multiply, None, MATVEC),
    "gather of experts": Case(operands_of(4, 256, 2048), gather, package_gather, GATHER),
    "few rows": Case(operands_of(4, 256, 2048), multiply, None, WIDE),
    "tiles of 16 rows": Case(operands_of(16, 640, 512), multiply, package_tiles, TILES),
    "tiles of 64 rows": Case(operands_of(64, 640, 512), multiply, package_tiles, TILES),
    "tiles, K split": Case(operands_of(32, 256, 1024), multiply, None, SPLIT),
    "tiles of sorted experts": Case(
        operands_of(64, 512, 512), sorted_experts, package_sorted, SORTED
    ),
    "rebuilding": Case(operands_of(1, 256, 2048), rebuild, package_rebuild),
    "rows by number": Case(operands_of(1, 256, 2048), take_rows),
    "format 2 to R4": load_by_ours("rice"),
    "format 1 to R4": load_by_ours("fixed"),
    "BF16 to R4": load_by_ours("bf16"),
}
