"""Our products on Metal, launched as src/metal/metal_plan.c plans them, on the emulator.

x is [M, K], W [N, K] or [E, N, K], uint16 patterns of BF16, as in products.py.
"""

import ctypes
import dataclasses

import numpy as np
from r4_kernels import Form, Kernels, plain, table, texts

BF16 = np.uint16
UINTS = ctypes.POINTER(ctypes.c_uint32)
OURS = ["rebuild", "matvec", "short", "long", "wide", "gemm", "split", "gather", "experts"]
MLX = ["dot", "gemv", "gemv_t", "gemv_wide", "split", "fused", "nax split", "nax", "gather_rhs",
       "nax gather_rhs", "gather_mv", "gather_wide", "gather_steel"]  # fmt: skip


class Gpu(ctypes.Structure):
    _fields_ = (("generation", ctypes.c_int), ("letter", ctypes.c_char), ("nax", ctypes.c_bool))


class Product(ctypes.Structure):
    _fields_ = (
        *((n, ctypes.c_int64) for n in ("m", "n", "k", "batch")),
        *((n, ctypes.c_bool) for n in ("has_bias", "x_transposed", "w_stored_kn", "is_aligned")),
    )


class Items(ctypes.Structure):
    _fields_ = (
        *((n, ctypes.c_int64) for n in ("m", "n", "k")),
        *((n, ctypes.c_bool) for n in ("is_sorted", "is_aligned")),
    )


class MlxRule(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_int),
        *((n, ctypes.c_int) for n in ("bm", "bn", "bk", "wm", "wn", "sm", "sn", "tm", "tn")),
        *((n, ctypes.c_int) for n in ("passes", "nvecs", "nlanes", "grid_x")),
        *((n, ctypes.c_int64) for n in ("nsplits", "split_ncols")),
    )


class Plan(ctypes.Structure):
    _fields_ = (
        ("kernel", ctypes.c_char_p),
        ("nvalues", ctypes.c_int),
        ("values", ctypes.c_int * 6),
        ("nsizes", ctypes.c_int),
        ("sizes", ctypes.c_int * 6),
        ("grid", ctypes.c_int * 3),
        ("threadgroup", ctypes.c_int * 3),
    )


def product(x, n, has_bias=False):
    m, k = x.shape
    return Product(m, n, k, 1, has_bias, False, False, True)


def rule(gpu, p):
    plain().metal_matmul_rule.restype = MlxRule
    return plain().metal_matmul_rule(ctypes.byref(gpu), ctypes.byref(p))


def nslices(k):
    return -(-k // 128)


@dataclasses.dataclass
class Weight:
    """R4 of `experts` blocks of `nrows` rows, of which rows row0 .. row0 + taken are meant."""

    slices: np.ndarray
    rows: np.ndarray
    escapes: np.ndarray
    base: int
    experts: int
    nrows: int
    k: int
    row0: int
    taken: int

    def facts(self):
        return np.array([self.row0, self.taken, self.nrows, self.base], np.int32)

    def part(self, i):
        named = {"slices": self.slices, "rows": self.rows, "escapes": self.escapes}
        named = {name: at_least_8(a) for name, a in named.items()}
        return {f"{name}_{i}": a for name, a in [*named.items(), ("facts", self.facts())]}

    def view(self, row0, taken):
        return dataclasses.replace(self, row0=row0, taken=taken)


def at_least_8(a):
    flat = a.reshape(-1)
    return np.concatenate([flat, np.full(max(0, 8 - flat.size), 0xEEEEEEEE, flat.dtype)])


def choose_base(w):
    """As loading does it, from the exponents by rank."""
    counts = np.bincount((w.reshape(-1) >> 7) & 255, minlength=256)
    ranked = np.array(sorted(range(256), key=lambda e: (-counts[e], e)), np.uint8)
    ranked[counts[ranked] == 0] = 0
    return plain().r4_choose_base(ranked.ctypes.data_as(ctypes.c_void_p))


def pack(w, base=None):
    """By the plain C definition."""
    w = np.ascontiguousarray(w, BF16)
    base = choose_base(w) if base is None else base
    k = w.shape[-1]
    total = w.size // k
    slices = np.zeros((total, nslices(k) * 48), np.uint32)
    rows = np.zeros((total + 1, 2), np.uint32)
    escapes = np.zeros(w.size, np.uint32)
    make = plain().r4_gpu_make_plain
    make.restype = ctypes.c_size_t
    n = make(w.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(total), k, 4, base,
             slices.ctypes.data_as(ctypes.c_void_p), rows.ctypes.data_as(ctypes.c_void_p),
             escapes.ctypes.data_as(ctypes.c_void_p))  # fmt: skip
    experts = w.shape[0] if w.ndim == 3 else 1
    nrows = w.shape[-2]
    return Weight(slices, rows, escapes[:n], base, experts, nrows, k, 0, nrows)


class Ours:
    """Products under one choice of what is open: how kernels are compiled, options of launches."""

    def __init__(self, gpu=None, fma=True, checked=False, counted=False, replace=None, **options):
        self.gpu = gpu or Gpu(16, b"s", False)
        self.kernels = Kernels(fma=fma, checked=checked, counted=counted, replace=replace)
        self.options = options
        self.reports = []

    def run(self, plan, given, shapes, dtypes=()):
        name = plan.kernel.decode()
        entry = table()[name]
        values = [bool(v) if p == "BIAS" else v
                  for p, v in zip(texts(entry.parameters), plan.values, strict=False)]  # fmt: skip
        template = dict(zip(texts(entry.parameters), values, strict=True))
        given = {"sizes": np.array(plan.sizes[: plan.nsizes], np.int32), **given}
        small = tuple(n for n in given if n in ANY_SIZE and given[n].size < 8)
        form = Form(name, small, dtypes, **template)
        outputs, report = self.kernels.launch(
            form, given, shapes, tuple(plan.grid), tuple(plan.threadgroup), **self.options
        )
        self.reports.append(report)
        return outputs

    def matmul(self, x, weights, biases=None):
        """The products with one to three weights of one launch; None where they are rebuilt."""
        p = product(x, 0, biases is not None)
        taken = (ctypes.c_int * len(weights))(*(w.taken for w in weights))
        plans = (Plan * 2)()
        n = plain().metal_plan_matmul(
            ctypes.byref(self.gpu), ctypes.byref(p), taken, len(weights), plans
        )
        if n == 0:
            return None
        given = {"x": x}
        for i, w in enumerate(weights):
            given |= {**w.part(i), f"bias_{i}": x if biases is None else biases[i]}
        shapes = {f"y_{i}": (len(x), w.taken) for i, w in enumerate(weights)}
        shapes["splits"] = (plans[0].sizes[2], len(x), weights[0].taken)
        outputs = self.run(plans[0], given, shapes)
        if n == 1:
            return [outputs[f"y_{i}"] for i in range(len(weights))]
        given = {"splits": outputs["splits"], "bias": given["bias_0"]}
        return [self.run(plans[1], given, {"y": (len(x), weights[0].taken)})["y"]]

    def gather(self, x, weights, rhs, lhs=None, items_per_x=0, is_sorted=False):
        items = Items(1, weights[0].taken, weights[0].k, is_sorted, True)
        taken = (ctypes.c_int * len(weights))(*(w.taken for w in weights))
        plan = Plan()
        done = plain().metal_plan_gather(
            ctypes.byref(self.gpu), ctypes.byref(items), len(rhs), len(x), weights[0].experts,
            items_per_x, taken, len(weights), ctypes.byref(plan),
        )  # fmt: skip
        if not done:
            return None
        given = {"x": x, "rhs": rhs, "lhs": rhs if lhs is None else lhs, "experts": rhs}
        for i, w in enumerate(weights):
            given |= w.part(i)
        shapes = {f"y_{i}": (len(rhs), w.taken) for i, w in enumerate(weights)}
        outputs = self.run(plan, given, shapes)
        return [outputs[f"y_{i}"] for i in range(len(weights))]

    def rebuild(self, w):
        plan = Plan()
        plain().metal_plan_rebuild(b"r4_rebuild", w.k, w.experts * w.taken, ctypes.byref(plan))
        shape = (w.experts * w.taken, w.k)
        return self.run(plan, w.part(0), {"y_0": shape})["y_0"]

    def take_rows(self, w, ids):
        plan = Plan()
        plain().metal_plan_rebuild(b"r4_rows", w.k, len(ids), ctypes.byref(plan))
        dtypes = {"ids": ids.dtype.name}
        given = {**w.part(0), "ids": ids}
        return self.run(plan, given, {"y_0": (len(ids), w.k)}, dtypes)["y_0"]


ANY_SIZE = {
    *("lhs", "rhs", "experts", "ids", "raw", "meta", "bits", "idx", "esc", "row_starts"),
    *("code_starts", "esc_starts", "starts", "masks", "kept", "values", "weights"),
}
