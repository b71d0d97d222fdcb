"""MLX's own kernels, by the names of their functions and the template arguments that MLX uses for
products x W^T of BF16. wheel.py fetches their sources."""

import functools

from emulator import Kernel, Source, compile_kernels
from wheel import WHEEL

KERNELS = WHEEL / "mlx/backend/metal/kernels"


INCLUDE_UTILS = '#include "mlx/backend/metal/kernels/utils.h"\n'
INCLUDE_STEEL = INCLUDE_UTILS + '#include "mlx/backend/metal/kernels/steel/gemm/gemm.h"\n'
STEEL = KERNELS / "steel/gemm/kernels"

# Template arguments of gemv for x W^T: BM, BN, SM, SN, TM, TN.
GEMV_TILES = [
    *((1, 8, 1, 32, 4, 4), (1, 8, 1, 32, 1, 4), (1, 1, 8, 4, 4, 4), (1, 1, 8, 4, 1, 4)),
    *((4, 1, 1, 32, 1, 4), (4, 1, 1, 32, 4, 4), (8, 1, 1, 32, 4, 4)),
]
# Of the fused GEMM: BM, BN, BK, WM, WN.
FUSED_TILES = [(64, 32, 32, 2, 2), (64, 64, 16, 1, 2), (64, 64, 16, 2, 2)]


def call(function, *arguments):
    words = {True: "true", False: "false"}
    texts = [words[a] if isinstance(a, bool) else str(a) for a in arguments]
    return f"{function}<{', '.join(texts)}>"


def named(prefix, numbers):
    return "_".join([prefix, *map(str, numbers)])


def gemv_kernels():
    for tile in GEMV_TILES:
        yield Kernel(named("gemv", tile), call("gemv", "bfloat16_t", *tile, False, False))
        yield Kernel(named("gemv_bias", tile), call("gemv", "bfloat16_t", *tile, False, True))
    for tile in GEMV_TILES[4:]:
        yield Kernel(named("gather", tile), call("gemv_gather", "bfloat16_t", *tile))
    for lanes in (16, 32):
        for nvec in (2, 3, 4, 5):
            arguments = ("bfloat16_t", nvec, lanes)
            yield Kernel(f"wide_{nvec}_{lanes}", call("gemv_wide", *arguments))
            yield Kernel(f"wide_gather_{nvec}_{lanes}", call("gemv_wide_gather", *arguments))


def fused_kernels():
    for tile in FUSED_TILES:
        yield Kernel(named("fused", tile), call("gemm", "bfloat16_t", *tile, False, True, "float"))


def splitk_kernels():
    for bm in (16, 32):
        for bn in (16, 32):
            for aligned in ((a, b) for a in (False, True) for b in (False, True)):
                arguments = ("bfloat16_t", "float", bm, bn, 16, 2, 2, False, True, *aligned)
                name = named("splitk", (bm, bn, *map(int, aligned)))
                yield Kernel(name, call("gemm_splitk", *arguments))
    yield Kernel("accumulate", "gemm_splitk_accum<float, bfloat16_t>")
    yield Kernel("accumulate_bias", "gemm_splitk_accum_axpby<float, bfloat16_t>")


def gather_kernels():
    arguments = ("bfloat16_t", 16, 64, 16, 1, 2, False, True, "float")
    yield Kernel("gather_rhs", call("gather_mm_rhs", *arguments))
    arguments = ("bfloat16_t", 64, 32, 32, 2, 2, False, True, "float")
    yield Kernel("gather_mm", call("gather_mm", *arguments))


def sources():
    """By the name of what they hold."""
    return {
        name: Source(f"mlx_{name}", [file], list(kernels()), prelude=prelude, ours=False)
        for name, (file, kernels, prelude) in {
            "gemv": (KERNELS / "gemv.h", gemv_kernels, INCLUDE_UTILS),
            "fused": (STEEL / "steel_gemm_fused.h", fused_kernels, INCLUDE_STEEL),
            "splitk": (STEEL / "steel_gemm_splitk.h", splitk_kernels, INCLUDE_STEEL),
            "gather": (STEEL / "steel_gemm_gather.h", gather_kernels, INCLUDE_STEEL),
        }.items()
    }


@functools.cache
def library(name, fma=True, checked=False, counted=False):
    """Kernels of MLX: `gemv`, `fused`, `splitk` or `gather`."""
    return compile_kernels(sources()[name], fma, checked, counted)
