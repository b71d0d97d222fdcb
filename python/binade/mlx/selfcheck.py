"""Compares every operation on packed weights with MLX's own, bit for bit, on the device at hand.

results = selfcheck.run(mx.gpu)

Some seconds on either device. Each result names the kernels that served; equal by rebuilding, where
a kernel serves by rights, is a matter of `_ops.path`, not of this check.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator

import mlx.core as mx
import numpy as np
from mlx_lm.models.activations import swiglu

from binade.mlx import _ops, fusion, operands
from binade.mlx.operands import MAKERS, ORDERED, to_bits, to_mlx

# N and K that fit no block, slice or tile, and some that do.
ONE_ROW = [
    *[(1, 4), (17, 1), (37, 100), (300, 520), (129, 704), (64, 2112), (1000, 64)],
    *[(70, 128), (5, 8195), (33, 896)],
]
LARGE = (4096, 4096)
SEVERAL_ROWS = [
    *[(2, 37, 100), (3, 300, 520), (8, 129, 704), (17, 64, 2112), (64, 300, 256)],
    *[(130, 33, 70), (300, 16, 64), (16, 1024, 4096), (40, 200, 4096), (130, 70, 2816)],
]
EXPERTS = [(5, 37, 100), (8, 64, 128), (4, 33, 704), (3, 16, 2112), (3, 20, 896)]
NORMED_K = [100, 704, 896, 2112]
MADE = [(256, 256), (1, 1), (17, 5), (33, 100), (300, 704), (3, 17, 70)]

Case = tuple[str, mx.array, mx.array]  # what it is, what was found, what is expected


@dataclasses.dataclass
class Result:
    """What one check found."""

    device: str  #: "cpu" or "gpu"
    what: str
    kernels: list[str]  #: that served it, as they are trusted
    ncases: int
    failure: str | None  #: the first difference


@dataclasses.dataclass
class Check:
    what: str
    cases: Callable[[], Iterable[Case]]
    #: To blame on a GPU if none gets as far as to be counted; None: it would be the check's fault.
    kernel: str | None
    judge: Callable[[str, mx.array, mx.array], str | None] | None = None  #: None: difference
    is_optional: bool = False  #: says nothing where there is nothing to check


def run(device: mx.DeviceType) -> list[Result]:
    """All checks on a device."""
    return list(iterate(device))


def iterate(device: mx.DeviceType) -> Iterator[Result]:
    """The same, one by one."""
    for check in CHECKS:
        with default_device(device):
            result = _run(check, device)
        if result.ncases or result.failure or not check.is_optional:
            yield result


@contextlib.contextmanager
def default_device(device: mx.DeviceType) -> Iterator[None]:
    """Weights are made for the default device."""
    before = mx.default_device()
    mx.set_default_device(mx.Device(device))
    try:
        yield
    finally:
        mx.set_default_device(before)


def _run(check: Check, device: mx.DeviceType) -> Result:
    before, ncases, failure = _served(), 0, None
    judge = check.judge or difference
    kernels: set[str] = set()
    last = "nothing"
    try:
        for last, got, want in check.cases():
            failure = failure or judge(last, got, want)
            ncases += 1
    except Exception as error:  # whatever a kernel does to a device, the report goes on
        first_line = next(iter(str(error).splitlines()), "")
        failure = failure or f"after {last}: {type(error).__name__}: {first_line}"
        kernels.add("cpu" if device == mx.cpu else check.kernel or "")
    after = _served()
    kernels |= {key for key in after if after[key] > before.get(key, 0)}
    names = sorted(kernels) if check.kernel else []
    return Result(device.name, check.what, names, ncases, failure)


def difference(name: str, got: mx.array, want: mx.array) -> str | None:
    """Where two arrays differ first, or None if they have the same bits."""
    if (got.dtype, got.shape) != (want.dtype, want.shape):
        return f"{name}: found {got.dtype} {got.shape}, expected {want.dtype} {want.shape}"
    mx.eval(got, want)
    x, y = to_bits(got), to_bits(want)
    wrong = np.argwhere(x != y)
    if not len(wrong):
        return None
    at = tuple(wrong[0].tolist())
    return (
        f"{name}: {len(wrong)} of {x.size} differ, first at {list(at)} of {list(x.shape)}: "
        f"found 0x{x[at]:04x}, expected 0x{y[at]:04x}"
    )


def _sameness(name: str, got: mx.array, want: mx.array) -> str | None:
    if difference(name, got, want) is None:
        return f"{name}: a sum in another order has the same bits"
    return None


# ---- Checks


def _made() -> Iterator[Case]:
    for maker in MAKERS:
        for shape in MADE:
            n, k = int(np.prod(shape[:-1])), shape[-1]
            w = to_mlx(operands.make(maker, 1, n, k)[1].reshape(shape))
            yield _name(maker, shape), _ops.r4_rebuild(_ops.r4_make(w)), w


def _one_row() -> Iterator[Case]:
    shapes = [*((maker, *shape) for maker in MAKERS for shape in ONE_ROW), (ORDERED[0], *LARGE)]
    for maker, n, k in shapes:
        x, w = _arrays(maker, 1, n, k)
        yield _name(maker, (1, n, k)), _ops.r4_matmul(x, _ops.r4_make(w)), x @ w.T


def _one_row_of(nweights: int) -> Callable[[], Iterator[Case]]:
    """Products of one x with several weights, of different numbers of rows."""

    def cases() -> Iterator[Case]:
        for maker in [*ORDERED, operands.special, operands.all_patterns]:
            for n, k in ONE_ROW:
                x, first = _arrays(maker, 1, n, k)
                more = [_arrays(maker, 1, n + 5 * i, k)[1] for i in range(1, nweights)]
                weights = [first, *more]
                found = _ops.r4_matmuls(x, [_ops.r4_make(w) for w in weights])
                for i, (got, w) in enumerate(zip(found, weights, strict=True)):
                    yield f"{_name(maker, (1, w.shape[0], k))} weight {i}", got, x @ w.T

    return cases


def _several_rows() -> Iterator[Case]:
    for maker in MAKERS:
        for m, n, k in SEVERAL_ROWS:
            x, w = _arrays(maker, m, n, k)
            yield _name(maker, (m, n, k)), _ops.r4_matmul(x, _ops.r4_make(w)), x @ w.T


def _bias() -> Iterator[Case]:
    for maker in [*ORDERED, operands.special]:
        for m, n, k in [*((1, *shape) for shape in ONE_ROW), *SEVERAL_ROWS]:
            x, w = _arrays(maker, m, n, k)
            bias = to_mlx(operands.random_bits(np.random.default_rng(n), (n,), 120, 140))
            got = _ops.r4_matmul(x, _ops.r4_make(w), bias)
            yield _name(maker, (m, n, k)), got, mx.addmm(bias, x, w.T)


def _experts() -> Iterator[tuple[str, mx.array, list[mx.array], np.random.Generator]]:
    """x of 24 rows and two stacks of experts."""
    for maker in [*ORDERED, operands.special, operands.with_escapes(0.5)]:
        for e, n, k in EXPERTS:
            x, w = operands.make(maker, 24, 2 * e * n, k)
            # Arrays of their own: MLX's order of sums may depend on where a weight begins.
            stacks = [to_mlx(half) for half in w.reshape(2, e, n, k)]
            yield _name(maker, (e, n, k)), to_mlx(x), stacks, np.random.default_rng(e)


def _few_experts() -> Iterator[Case]:
    for name, x, (w, _), rng in _experts():
        ids = mx.array(rng.integers(0, len(w), (3, 2)))
        tokens = x[:3, None, None]
        got = _ops.r4_gather_mm(tokens, _ops.r4_make(w), rhs_indices=ids)
        yield name, got, _gather(tokens, w, ids)


def _few_experts_of_two() -> Iterator[Case]:
    for name, x, stacks, rng in _experts():
        ids = mx.array(rng.integers(0, len(stacks[0]), (3, 2)))
        tokens = x[:3, None, None]
        packed = [_ops.r4_make(w) for w in stacks]
        found = _ops.r4_gather_mms(tokens, packed, rhs_indices=ids)
        for i, (got, w) in enumerate(zip(found, stacks, strict=True)):
            yield f"{name} weight {i}", got, _gather(tokens, w, ids)


def _sorted_experts() -> Iterator[Case]:
    for name, x, (w, _), rng in _experts():
        ids = mx.array(np.sort(rng.integers(0, len(w), 70)))
        rows = x[:, None][mx.array(rng.integers(0, len(x), 70))]  # as mlx-lm sorts them
        got = _ops.r4_gather_mm(rows, _ops.r4_make(w), rhs_indices=ids, sorted_indices=True)
        yield name, got, _gather(rows, w, ids, sorted_indices=True)


def _gather(x: mx.array, w: mx.array, ids: mx.array, sorted_indices: bool = False) -> mx.array:
    """MLX's own product with experts. Its CPU backend has none in BF16: one for each expert."""
    if mx.default_device() != mx.Device(mx.cpu):
        weight = w.swapaxes(-1, -2)
        return mx.gather_mm(x, weight, rhs_indices=ids, sorted_indices=sorted_indices)
    shape = (*ids.shape, 1, x.shape[-1])
    rows = mx.broadcast_to(x, shape).reshape(-1, x.shape[-1])
    products = mx.stack([rows @ expert.T for expert in w])
    chosen = products[ids.flatten(), mx.arange(len(rows))]
    return chosen.reshape(*ids.shape, 1, w.shape[1])


def _fused() -> Iterator[Case]:
    """Launches that do what is around products too; on a device that has any."""
    x, w = _arrays(ORDERED[0], 1, 37, 100)
    if _ops.fuse_add(mx.zeros((1, 37), mx.bfloat16), _ops.r4_matmul(x, _ops.r4_make(w))) is None:
        return
    for maker in [*ORDERED, operands.special, operands.all_patterns]:
        for n, k in ONE_ROW:
            yield from _fused_products(maker, n, k)
    for k in NORMED_K:  # of the unit matrix, which shows all of the norm
        for size in (1e-3, 1.0, 30.0):
            x = to_mlx(operands.random_bits(np.random.default_rng(k), (1, k), 120, 128)) * size
            yield _normed(f"norm of {k} times {size}", x, mx.eye(k).astype(mx.bfloat16))
    table = fusion._table_of(swiglu)
    for name, x, stacks, rng in _experts():
        ids = mx.array(rng.integers(0, len(stacks[0]), (3, 2)))
        tokens, packed = mx.contiguous(x[:3, None, None]), [_ops.r4_make(w) for w in stacks]
        mx.eval(tokens)  # where a slice begins is not known before
        gate, up = _ops.r4_gather_mms(tokens, packed, rhs_indices=ids)
        want = swiglu(*(_gather(tokens, w, ids) for w in stacks))
        yield f"gated experts {name}", _must(_ops.fuse_gated(gate, up, table)), want


def _fused_products(maker: operands.Maker, n: int, k: int) -> Iterator[Case]:
    x, gate = _arrays(maker, 1, n, k)
    up = _arrays(operands.with_escapes(0.5), 1, n, k)[1]
    residual = to_mlx(operands.random_bits(np.random.default_rng(n), (1, n), 110, 140))
    packed = [_ops.r4_make(w) for w in (gate, up)]
    name = _name(maker, (1, n, k))
    added = _must(_ops.fuse_add(residual, _ops.r4_matmul(x, packed[0])))
    yield f"added {name}", added, residual + x @ gate.T
    gated = _ops.fuse_gated(*_ops.r4_matmuls(x, packed), fusion._table_of(swiglu))
    yield f"gated {name}", _must(gated), swiglu(x @ gate.T, x @ up.T)
    yield _normed(f"normed {name}", x, gate)


def _normed(name: str, x: mx.array, w: mx.array) -> Case:
    """The product computes a norm that is not computed yet."""
    k = x.shape[-1]
    weight = to_mlx(operands.random_bits(np.random.default_rng(k), (k,), 125, 128))
    normed = mx.fast.rms_norm(x, weight, 1e-5)
    mx.eval(normed)
    got = _ops.r4_matmul(mx.fast.rms_norm(x, weight, 1e-5), _ops.r4_make(w))
    return name, got, normed @ w.T


def _must(fused: mx.array | None) -> mx.array:
    if fused is None:
        raise RuntimeError("no launch does that, although others do")
    return fused


def _rows() -> Iterator[Case]:
    for maker in MAKERS:
        for n, k in ONE_ROW:
            w = _arrays(maker, 1, n, k)[1]
            ids = mx.array(np.random.default_rng(n).integers(-n, n, (3, 40)))
            yield _name(maker, (n, k)), _ops.r4_rows(_ops.r4_make(w), ids), mx.take(w, ids, axis=0)


def _reversed() -> Iterator[Case]:
    """Columns in reverse: what the data of the other checks must tell from the right order. What
    cancels shows that on every device; what comes and goes does not in the lanes of a GPU."""
    maker = operands.cancelling
    for m, n, k in [(1, 64, 704), (1, 37, 100), (8, 64, 704), (17, 37, 100), (16, 256, 4096)]:
        x, w = operands.make(maker, m, n, k)
        got = _ops.r4_matmul(to_mlx(x[:, ::-1]), _ops.r4_make(to_mlx(w[:, ::-1])))
        yield _name(maker, (m, n, k)), got, to_mlx(x) @ to_mlx(w).T


CHECKS = [
    Check("weight made and rebuilt", _made, "rebuild"),
    Check("one row of x", _one_row, "matvec"),
    Check("one row, two weights", _one_row_of(2), "matvec"),
    Check("one row, three weights", _one_row_of(3), "matvec"),
    Check("several rows of x", _several_rows, "gemm"),
    Check("products with a bias", _bias, "rebuild"),
    Check("experts, few tokens", _few_experts, "gather"),
    Check("experts, two weights", _few_experts_of_two, "gather"),
    Check("experts, sorted", _sorted_experts, "gemm"),
    Check("fused launches", _fused, "fused", is_optional=True),
    Check("embedding rows", _rows, "rows"),
    Check("another order is noticed", _reversed, None, _sameness),
]


def _arrays(maker: operands.Maker, m: int, n: int, k: int) -> tuple[mx.array, mx.array]:
    x, w = operands.make(maker, m, n, k)
    return to_mlx(x), to_mlx(w)


def _name(maker: operands.Maker, shape: tuple[int, ...]) -> str:
    return f"{maker.__name__.replace('_', ' ')} {'x'.join(map(str, shape))}"


def _served() -> dict[str, int]:
    """How often kernels have run, by the names under which they are trusted. Rebuilding is one,
    whatever device does it."""
    counts: dict[str, int] = {}
    for operation, kernel, *_, count in _ops.served():
        name = "rebuild" if operation == "rebuild" else _trusted_as(kernel)
        counts[name] = counts.get(name, 0) + count
    return counts


def _trusted_as(kernel: str) -> str:
    """matvec_1 is a matvec; with more in its name it is a fused one."""
    family, *variants = kernel.split("_")
    return "fused" if {"added", "gated", "normed"} & set(variants) else family
