"""Kernels that are wrong on purpose: each must be told from MLX's by the comparisons used here."""

import functools

import mlx_operands as operands
import numpy as np
import oracle
import pytest
from agreement import compare, differing, variants
from emulator import EmulationError, Kernel, Source, compile_kernels
from products import Mlx

PATH = "tests/metal/controls/matvec.metal"
ALIGNED = [(1, 40, 576), (1, 70, 1001)]  # one simdgroup a row
WIDE = [(1, 8, 1024), (1, 3, 4096)]  # eight, K >= 16 N
BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"


@functools.cache
def matvec(fma=True, checked=False, *changes):
    kernels = [Kernel(f"matvec_{g}", f"control_matvec<{g}>") for g in (1, 8)]
    source = Source("control", [PATH], kernels, replace={PATH: list(changes)})
    return compile_kernels(source, fma, checked)


def control(x, w, variant, *changes, checked=False):
    n, k = w.shape
    groups = 8 if k >= 16 * n else 1
    y = np.zeros(n, np.uint16)
    library = matvec(variant.fma, checked, *changes)
    library.launch(f"matvec_{groups}", [w, x, y, np.array([k], np.uint32)],
                   (32 * groups * n, 1, 1), (32 * groups, 1, 1), **variant.options())  # fmt: skip
    return y


def mlx(x, w, variant):
    return Mlx(fma=variant.fma, **variant.options()).gemv(x, w)


def check(*changes, shapes=(*ALIGNED, *WIDE), checked=False):
    choices = variants(orders=range(4), full=True)
    return compare(
        lambda x, w, v: control(x, w, v, *changes, checked=checked),
        mlx,
        shapes,
        [operands.pairs, operands.tiny, operands.specials],
        choices[:: 8 if checked else 1],
    )


def test_the_right_kernel_agrees():
    assert check() > 1000
    assert check(checked=True)


@pytest.mark.parametrize(
    "change",
    [
        ("step = 16; step >= 1; step /= 2", "step = 1; step <= 16; step *= 2"),
        ("simd_shuffle_down(sum, step)", "simd_shuffle_xor(sum, ushort(step & 15))"),
        ("i = 0; i < 4; i++", "j = 4, i = 3; j-- > 0; i--"),
        ("128 * GROUPS) {", "128 * GROUPS) {\n if (k > 500) continue;"),
        ("+= float(from[k + i]) *", "-= float(from[k + i]) * -1.25f *"),
    ],
)
def test_another_order_is_told(change):
    with pytest.raises(AssertionError, match="differ"):
        check(change)


def test_a_plain_chain_is_told():
    chain = (
        "for (uint k = 128 * simd + 4 * lane; k < ncolumns; k += 128 * GROUPS)",
        "for (uint k = lane || simd ? ncolumns : 0; k < ncolumns; k += 4)",
    )
    with pytest.raises(AssertionError, match="differ"):
        check(chain)


def test_an_order_of_simdgroups_is_told():
    changes = [("total = sums[0]", "total = sums[GROUPS - 1]"),
               ("total += sums[i]", "total += sums[GROUPS - 1 - i]")]  # fmt: skip
    check(*changes, shapes=ALIGNED)
    with pytest.raises(AssertionError, match="differ"):
        check(*changes, shapes=WIDE)


def test_a_removed_barrier_is_told():
    """By results, as soon as simdgroup 0 comes first; and as a race whatever comes first."""
    with pytest.raises(AssertionError, match="differ"):
        check((BARRIER, ""), shapes=WIDE)
    with pytest.raises(EmulationError, match="read") as caught:
        check((BARRIER, ""), shapes=WIDE, checked=True)
    assert set(caught.value.findings) & {"race", "uninitialised"}


def test_a_read_past_the_end_is_told():
    with pytest.raises(EmulationError, match="a load of 2 bytes outside all memory"):
        check(("k + i < ncolumns", "k + i <= ncolumns"), shapes=[(1, 70, 1001)], checked=True)


def test_truncation_is_told():
    cut = "y[row] = bfloat(as_type<float>(as_type<uint>(total) & 0xFFFF0000))"
    with pytest.raises(AssertionError, match="differ"):
        check(("y[row] = bfloat(total)", cut))


# ---- Changes in copies of MLX's own kernels


def changed(library, file, old, new, prelude="", checked=False):
    source = oracle.sources()[library]
    source.replace = {str(file): [(old, new)]}
    source.prelude += prelude
    return {library: compile_kernels(source, checked=checked)}


def test_another_order_of_shuffles_in_mlx_is_told():
    """All lanes are still summed, but not by halves."""
    prelude = (
        "template <typename T> T shuffled(T v, ushort d)"
        "{ return metal::simd_shuffle_down(v, 16 / d); }\n"
    )
    file = oracle.KERNELS / "gemv.h"
    libraries = changed("gemv", file, "simd_shuffle_down(", "shuffled(", prelude)
    x, w = operands.operands(operands.pairs, 1, 64, 576)
    assert differing(Mlx(libraries=libraries).gemv(x, w), Mlx().gemv(x, w)) > 30


def test_a_removed_barrier_in_mlx_is_told():
    barrier = "threadgroup_barrier(mem_flags::mem_threadgroup);"
    file = oracle.STEEL / "steel_gemm_fused.h"
    x, w = operands.operands(operands.pairs, 64, 64, 128)
    tile = (64, 64, 16, 2, 2)
    libraries = changed("fused", file, barrier, "")
    want = Mlx().fused(x, w, tile)
    assert any(
        differing(Mlx(libraries=libraries, order=order).fused(x, w, tile), want)
        for order in range(4)
    )
    libraries = changed("fused", file, barrier, "", checked=True)
    with pytest.raises(EmulationError) as caught:
        Mlx(libraries=libraries).fused(x, w, tile)
    assert set(caught.value.findings) & {"race", "uninitialised"}
