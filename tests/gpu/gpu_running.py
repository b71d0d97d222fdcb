"""What the tests on a GPU share: the device, comparing bits there, and what served each shape."""

import collections
import os
from pathlib import Path

import mlx.core as mx
import mlx_operands
from binade.mlx import _ops

#: Only tries the tests: small shapes, on the CPU.
DRY = os.environ.get("BINADE_TEST_DEVICE") == "cpu"
HERE = Path(__file__).resolve().parent
_table = collections.defaultdict(lambda: collections.defaultdict(set))


def choose_device():
    """Makes it the default; returns why not, in one sentence, or None."""
    if DRY:
        mx.set_default_device(mx.cpu)
        return None
    if not mx.is_available(mx.gpu):
        return "these tests need an NVIDIA GPU and MLX for CUDA; this MLX has no GPU"
    mx.set_default_device(mx.gpu)
    return None


def assert_same_bits(got, want, what=""):
    """Compared where they are, shown from a copy."""
    assert got.dtype == want.dtype == mx.bfloat16, f"{what}: {got.dtype}, not {want.dtype}"
    assert got.shape == want.shape, f"{what}: {got.shape}, not {want.shape}"
    if not mx.array_equal(got.view(mx.uint16), want.view(mx.uint16)):
        mlx_operands.assert_same_bits(got, want, what)
        raise AssertionError(f"{what}: the same on the CPU, not on the GPU")


def forbid_rebuild(forbid):
    _ops.forbid_rebuild(forbid)


def take_served():
    """The entries since it was last asked, (operation, kernel, M, R, K, count)."""
    entries = list(_ops.served())
    _ops.reset_counts()
    for operation, kernel, m, rows, cols, _ in entries:
        _table[operation, rows, cols][kernel].add(m)
    return entries


def kernels_of(entries, operation):
    """{kernel: how often} of one operation."""
    kernels = collections.Counter()
    for name, kernel, _, _, _, count in entries:
        if name == operation:
            kernels[kernel] += count
    return dict(kernels)


def table_of_served():
    """A line for each operation and shape."""
    if not _table:
        return ["nothing is known to have been served"]
    lines = []
    for (operation, rows, cols), kernels in sorted(_table.items()):
        parts = []
        for kernel, ms in sorted(kernels.items()):
            listed = sorted(ms)
            text = ",".join(map(str, listed[:5])) + (",..." if len(listed) > 5 else "")
            parts.append(f"{kernel} M={text}")
        lines.append(f"{operation} {rows}x{cols}: {'; '.join(parts)}")
    return lines
