"""How long products take with packed weights beside BF16 ones, for a report, not a benchmark.

Each product gets its x from the one before it, so that none run at the same time, and each has a
weight of its own, so that caches do not hold them.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx

from binade.mlx import _ops
from binade.mlx.selfcheck import default_device

# N x K of the weights that follow each other: x fits again after each group. MLX's CPU products of
# BF16 take milliseconds, so there are few.
_SHAPES = {
    "cpu": [[(2048, 2048)], [(5632, 2048), (2048, 5632)]],
    "gpu": [[(4096, 4096)], [(14336, 4096), (4096, 14336)]],
}
_NBYTES = {"cpu": 64 << 20, "gpu": 512 << 20}  # of the weights in BF16: more than caches hold
_PRODUCTS = {"cpu": 8, "gpu": 64}  # in a row, so that starting them hides
_REBUILDS = {"cpu": 1, "gpu": 4}  # at once: on a CPU, new memory costs more than starting
_NTIMES = 5


@dataclasses.dataclass
class Speed:
    """Microseconds for a product with one row of x, or for rebuilding one weight."""

    device: str
    shapes: str
    packed_us: float
    bf16_us: float
    rebuild_us: float
    packed_nbytes: float
    bf16_nbytes: float

    @property
    def ratio(self) -> float:
        """How many times as fast as in BF16."""
        return self.bf16_us / self.packed_us


def measure(device: mx.DeviceType) -> list[Speed]:
    """Raises RuntimeError or MemoryError where there is no room."""
    with default_device(device):
        return [_measure(device.name, shapes) for shapes in _SHAPES[device.name]]


def _measure(device: str, shapes: Sequence[tuple[int, int]]) -> Speed:
    nbytes = sum(2 * n * k for n, k in shapes)
    ncopies = max(2, _NBYTES[device] // nbytes)
    weights = [_weight(n, k) for _ in range(ncopies) for n, k in shapes]
    packed = [_ops.r4_make(w) for w in weights]
    x = mx.ones((1, shapes[0][1]), mx.bfloat16)
    mx.eval(x, weights)
    nproducts = _PRODUCTS[device] // len(weights) * len(weights) or len(weights)

    def chain(product: Callable, weights: Sequence) -> mx.array:
        y = x
        for i in range(nproducts):
            y = product(y, weights[i % len(weights)])
        return y

    in_packed = _median(lambda: chain(_ops.r4_matmul, packed)) / nproducts
    in_bf16 = _median(lambda: chain(lambda y, w: y @ w.T, weights)) / nproducts
    some = packed[: _REBUILDS[device] * len(shapes)]
    rebuild = _median(lambda: [_ops.r4_rebuild(w) for w in some]) / len(some)
    return Speed(
        device,
        " and ".join(f"{n}x{k}" for n, k in shapes),
        *(1e6 * seconds for seconds in (in_packed, in_bf16, rebuild)),
        sum(w.nbytes for w in packed) / len(packed),
        nbytes / len(shapes),
    )


def _weight(n: int, k: int) -> mx.array:
    """As trained ones are, and such that x neither grows nor fades from product to product."""
    return (mx.random.normal((n, k)) * k**-0.5).astype(mx.bfloat16)


def _median(graph: Callable[[], Any]) -> float:
    """Seconds to evaluate what is built before."""
    times = []
    for _ in range(1 + _NTIMES):
        built = graph()
        start = time.perf_counter()
        mx.eval(built)
        times.append(time.perf_counter() - start)
        del built  # its memory is used again
    return statistics.median(times[1:])
