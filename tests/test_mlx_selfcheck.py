"""The self-check of fused launches, which CPUs have none of: they are made of MLX's operations."""

import itertools

import pytest

mx = pytest.importorskip("mlx.core")

from binade.mlx import _ops, selfcheck  # noqa: E402


@pytest.fixture
def launches(monkeypatch):
    """What a GPU does in one launch, made of MLX's operations."""
    monkeypatch.setattr(_ops, "fuse_add", lambda r, product: r + product)
    monkeypatch.setattr(_ops, "fuse_gated", lambda gate, up, act: act[gate.view(mx.uint16)] * up)
    monkeypatch.setattr(selfcheck, "ONE_ROW", [(37, 100)])
    monkeypatch.setattr(selfcheck, "EXPERTS", [(5, 37, 100)])
    monkeypatch.setattr(selfcheck, "NORMED_K", [100])
    checks = [check for check in selfcheck.CHECKS if check.is_optional]
    monkeypatch.setattr(selfcheck, "CHECKS", checks)


def check_fused():
    (result,) = selfcheck.run(mx.cpu)
    return result


@pytest.mark.usefixtures("launches")
def test_fused_launches():
    result = check_fused()
    assert result.failure is None
    assert result.ncases == 4 * 3 + 3 + 4


FUSED_FAULTS = {
    "added ": ("fuse_add", lambda r, product: product - r),
    "gated ": ("fuse_gated", lambda gate, up, act: act[up.view(mx.uint16)] * gate),
    "after added cancelling 1x37x100: RuntimeError: no launch does that": (
        "fuse_gated",
        lambda *_: None,
    ),
}


@pytest.mark.usefixtures("launches")
@pytest.mark.parametrize("start", FUSED_FAULTS)
def test_fused_launches_can_fail(start, monkeypatch):
    monkeypatch.setattr(_ops, *FUSED_FAULTS[start])
    assert check_fused().failure.startswith(start)


@pytest.mark.usefixtures("launches")
def test_another_norm_is_noticed(monkeypatch):
    """The product has that of every second call."""
    norm, counter = mx.fast.rms_norm, itertools.count()
    monkeypatch.setattr(mx.fast, "rms_norm", lambda *a: norm(*a) * (1 + next(counter) % 2))
    assert check_fused().failure.startswith("normed ")


def test_names_under_which_kernels_are_trusted(monkeypatch):
    names = {
        "matvec": ["matvec_1", "matvec_3", "matvec_any"],
        "gather": ["gather_2", "gather_any"],
        "fused": ["matvec_added", "matvec_gated_normed", "matvec_normed_2", "gather_gated"],
        "cpu": ["cpu"],
        "rows": ["rows"],
    }
    served = [("matmul", kernel, 1, 1, 1, 2) for kernels in names.values() for kernel in kernels]
    monkeypatch.setattr(_ops, "served", lambda: [*served, ("rebuild", "cpu", 0, 1, 1, 3)])
    want = {name: 2 * len(kernels) for name, kernels in names.items()}
    assert selfcheck._served() == want | {"rebuild": 3}


def test_without_launches_nothing_is_said(monkeypatch):
    checks = [check for check in selfcheck.CHECKS if check.is_optional]
    monkeypatch.setattr(selfcheck, "CHECKS", checks)
    assert selfcheck.run(mx.cpu) == []
