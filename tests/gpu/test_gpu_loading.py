"""Weights loaded from packs of both formats are those that were packed; what may be rebuilt."""

import os
import subprocess
import sys
from pathlib import Path

import gpu_data as data
import mlx.core as mx
import pytest
from binade.mlx import _ops
from gpu_running import DRY, HERE, assert_same_bits, forbid_rebuild, kernels_of, take_served
from test_gpu_gather import choose, gather

BINADE = os.environ["BINADE_BIN"]
LAYER = "model.layers.{}.mlp.up_proj.weight"
FUSED = "model.layers.0.mlp.experts.gate_up_proj"
# Smaller matrices are not packed.
SHAPES = [(1024, 512), (300, 704), (257, 520), (260, 2112), (2048, 4096), (3000, 260), (256, 20000)]
NEXPERTS, NROWS, NCOLS = (3, 130, 300) if DRY else (64, 704, 1056)
if DRY:
    SHAPES = [(1024, 512), (257, 520)]


@pytest.fixture(scope="module")
def tensors():
    weights = {}
    for shape in SHAPES:
        for kind in data.EVERY_KIND:
            weights[LAYER.format(len(weights))] = data.operands(kind, 1, *shape)[1]
    fused = data.operands("mixed", 1, NEXPERTS * 2 * NROWS, NCOLS)[1]
    weights[FUSED] = fused.reshape(NEXPERTS, 2 * NROWS, NCOLS)
    return weights


@pytest.fixture(scope="module", params=[1, 2])
def checkpoint(request, tensors, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pack")
    original, packed = folder / "original", folder / "packed"
    original.mkdir()
    mx.save_safetensors(str(original / "model.safetensors"), tensors, {"format": "pt"})
    command = [BINADE, "pack", original, "--out", packed, "--format", str(request.param), "-q"]
    subprocess.run(command, check=True)
    return _ops.Checkpoint(str(packed))


def test_loaded_weights(checkpoint, tensors):
    """The same as packed in memory: weights, rows and products."""
    packed = [name for name in checkpoint.names() if checkpoint.info(name)["packed"]]
    assert set(packed) == set(tensors)
    for name in packed:
        w, loaded = tensors[name], checkpoint.load_r4(name)
        assert loaded.shape == w.shape
        assert_same_bits(_ops.r4_rebuild(loaded), w, name)
        if w.ndim == 2:
            made, x = _ops.r4_make(w), data.paired_x(1, w.shape[1])
            y = _ops.r4_matmul(x, loaded)
            assert_same_bits(y, x @ w.T, name)
            assert_same_bits(y, _ops.r4_matmul(x, made), name)
            ids = mx.array([0, len(w) - 1, len(w) // 2])
            assert_same_bits(_ops.r4_rows(loaded, ids), w[ids], name)


def test_ranges_of_rows(checkpoint, tensors):
    for i in range(len(tensors) - 1):
        name = LAYER.format(i)
        w = tensors[name]
        for row0, row1 in ((0, 1), (0, len(w)), (3, 8), (len(w) - 1, len(w)), (1, len(w) - 1)):
            loaded, part = checkpoint.load_r4(name, row0, row1), w[row0:row1]
            what = f"{name} rows {row0} to {row1}"
            assert_same_bits(_ops.r4_rebuild(loaded), part, what)
            x = data.paired_x(1, w.shape[1])
            assert_same_bits(_ops.r4_matmul(x, loaded), x @ part.T, what)


def test_halves_of_experts(checkpoint, tensors):
    """Gate and up are rows of one tensor; both in one operation."""
    whole = tensors[FUSED]
    halves = [(0, NROWS), (NROWS, 2 * NROWS)]
    packed = [checkpoint.load_r4(FUSED, *rows) for rows in halves]
    weights = [whole[:, row0:row1] for row0, row1 in halves]
    for one, w in zip(packed, weights, strict=True):
        assert_same_bits(_ops.r4_rebuild(one), mx.contiguous(w))
    for tokens in (1, 4, 7):
        rhs = choose(NEXPERTS, tokens, 4)
        x = data.paired_x(tokens, NCOLS)[:, None, None]
        ys = _ops.r4_gather_mms(x, packed, rhs_indices=rhs)
        for y, w in zip(ys, weights, strict=True):
            assert_same_bits(y, gather(x, mx.contiguous(w), rhs=rhs), f"{tokens} tokens")


def test_memory_is_given_back(checkpoint):
    """Loading again and again leaves nothing behind."""
    checkpoint.load_r4(LAYER.format(0))
    mx.synchronize()
    before = mx.get_active_memory()
    for _ in range(5):
        checkpoint.load_r4(LAYER.format(0))
    mx.synchronize()
    assert mx.get_active_memory() <= before


# ---- What may be rebuilt


def test_forbidding():
    """A product that a kernel serves runs, and so does what is meant to be rebuilt."""
    for n, k in ((64, 256), (64, 100), (40, 704), (33, 4)):
        x, w = data.operands("paired", 3, n, k)
        packed, bias = _ops.r4_make(w), data.normal((n,))
        forbid_rebuild(True)
        take_served()
        y = _ops.r4_matmul(x[:1], packed)
        assert_same_bits(y, x[:1] @ w.T)
        rows = _ops.r4_rows(packed, mx.array([0, n - 1]))
        assert_same_bits(rows, w[mx.array([0, n - 1])])
        entries = take_served()
        kernel, reason = _ops.path(packed, 1, False)
        assert reason
        assert kernel != "rebuild"
        ((served, count),) = kernels_of(entries, "matmul").items()
        assert served.startswith(kernel)  # matvec is matvec_1 or one of its kin
        assert count == 1
        assert sum(kernels_of(entries, "rows").values()) == 1
        assert not kernels_of(entries, "rebuild")
        for got, want in (
            (_ops.r4_matmul(x, packed), x @ w.T),
            (_ops.r4_matmul(x[:1], packed, bias), mx.addmm(bias, x[:1], w.T)),
        ):
            assert_same_bits(got, want)
        forbid_rebuild(False)


def test_paths_are_told_as_they_are_taken():
    _, w = data.operands("paired", 1, 40, 256)
    packed, bias = _ops.r4_make(w), data.normal((40,))
    for m in (1, 2, 64):
        for has_bias in (False, True):
            take_served()
            mx.eval(_ops.r4_matmul(data.paired_x(m, 256), packed, bias if has_bias else None))
            kernel, reason = _ops.path(packed, m, has_bias)
            assert isinstance(reason, str)
            served = kernels_of(take_served(), "matmul")
            assert [name.startswith(kernel) for name in served] == [True] * (kernel != "rebuild")
            if not DRY:
                assert (kernel == "rebuild") == (m > 1 or has_bias)


FORBIDDEN = """
import gpu_running
assert gpu_running.choose_device() is None
import gpu_data as data
import mlx.core as mx
from binade.mlx import _ops
x, w = data.operands("paired", 3, 64, 256)
packed = _ops.r4_make(w)
for m in (1, 3):
    gpu_running.assert_same_bits(_ops.r4_matmul(x[:m], packed), x[:m] @ w.T)
print(_ops.counts()["matmul"] > 0)
"""


def test_forbidding_from_outside():
    env = {**os.environ, "BINADE_FORBID_REBUILD": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", FORBIDDEN]
    done = subprocess.run(command, env=env, capture_output=True, text=True, cwd=Path(HERE))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "True"
