"""Tests of packed products on an NVIDIA GPU, bit for bit against MLX on the same GPU.

BINADE_TEST_DEVICE=cpu tries the tests themselves, with small shapes, where there is no GPU.
"""

import sys
from pathlib import Path

import mlx.core as mx
import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent / "bench")]

import gpu_running  # noqa: E402


def pytest_sessionstart(session):
    reason = gpu_running.choose_device()
    if reason:
        pytest.exit(reason, returncode=2)


@pytest.fixture(autouse=True)
def _served():
    """What served each shape is kept for the table; the next test starts anew."""
    gpu_running.take_served()
    mx.random.seed(0)
    yield
    gpu_running.forbid_rebuild(False)
    gpu_running.take_served()


def pytest_terminal_summary(terminalreporter):
    terminalreporter.section("which kernel served each shape")
    for line in gpu_running.table_of_served():
        terminalreporter.write_line(line)
