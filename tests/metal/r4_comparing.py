"""Ours beside MLX's, both emulated under the same choices of what is open."""

import ctypes
import functools

import numpy as np
from products import Mlx
from r4_kernels import plain
from r4_products import MLX, Gpu, Ours, pack, product, rule

M1 = Gpu(13, b"g", False)
M3_MAX = Gpu(15, b"s", False)
M4 = Gpu(16, b"g", False)
M4_ULTRA = Gpu(16, b"d", False)


@functools.cache
def kernels(fma, checked):
    """Compiled forms, shared by all that launches them with different options."""
    return Ours(fma=fma, checked=checked).kernels


def ours(variant, gpu=M4, checked=False):
    made = Ours(gpu, **variant.options())
    made.kernels = kernels(variant.fma, checked)
    return made


def mlx(variant):
    return Mlx(fma=variant.fma, **variant.options())


def bias_of(n):
    rng = np.random.default_rng(n)
    return rng.integers(0x3C00, 0x4100, n, np.uint16) | rng.integers(0, 2, n, np.uint16) << 15


def multiply(x, w, variant, gpu=M4, bias=False, checked=False):
    """By our kernel for this shape."""
    biases = [bias_of(len(w))] if bias else None
    made = ours(variant, gpu, checked).matmul(x, [pack(w)], biases)
    assert made is not None, f"no kernel serves {x.shape} x {w.shape}"
    return made[0]


def multiply_by_mlx(x, w, variant, gpu=M4, bias=False):
    """By the kernel that MLX takes on this GPU."""
    chosen = rule(gpu, product(x, len(w), bias))
    bias = bias_of(len(w)) if bias else None
    run = mlx(variant)
    name = MLX[chosen.name]
    if name == "gemv":
        return run.gemv(x, w, bias).reshape(1, -1)
    if name == "gemv_wide":
        return run.wide(x, w, bias)
    if name == "split":
        return run.split(x, w, bias)
    assert name == "fused", name
    tile = (chosen.bm, chosen.bn, chosen.bk, chosen.wm, chosen.wn)
    return run.fused(x, w, tile, bias)


def matvec_definition(x, w):
    """The order of 32 lanes in plain C (src/cuda/r4_gpu_plain.h); its NaN is another."""
    n, k = w.shape
    y = np.zeros(n, np.uint16)
    x, w = np.ascontiguousarray(x), np.ascontiguousarray(w)
    pointers = [a.ctypes.data_as(ctypes.c_void_p) for a in (w, x)]
    plain().r4_gemv_plain(*pointers, ctypes.c_size_t(n), ctypes.c_size_t(k), 4,
                          y.ctypes.data_as(ctypes.c_void_p))  # fmt: skip
    return y.reshape(1, -1)
