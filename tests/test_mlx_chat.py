"""The demo's chat runs through, and any difference between the two answers ends it."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

mx = pytest.importorskip("mlx.core")

DEMO = Path(__file__).parent.parent / "demo"
MODEL = Path(os.environ["BINADE_DEMO_MODEL"])

sys.path.insert(0, str(DEMO))
import chat  # noqa: E402


def answer(tokens, rows):
    return SimpleNamespace(tokens=tokens, logprobs=mx.array(rows, mx.bfloat16))


def test_differences_are_found():
    one = answer([1, 2], [[0.0, -1.0], [-2.0, -3.0]])
    chat.compare(one, one)
    for other, sentence in (
        (answer([1, 3], [[0.0, -1.0], [-2.0, -3.0]]), "token 1 is 3"),
        (answer([1], [[0.0, -1.0]]), "1 tokens, not 2"),
        (answer([1, 2], [[0.0, -1.0], [-2.0, -3.015625]]), "of token 1 differ"),
        (answer([1, 2], [[-0.0, -1.0], [-2.0, -3.0]]), "of token 0 differ"),
    ):
        with pytest.raises(SystemExit, match=sentence):
            chat.compare(one, other)


def test_chat_runs_through(tmp_path):
    packed = tmp_path / "packed"
    subprocess.run([os.environ["BINADE_BIN"], "pack", MODEL, "--out", packed, "-q"], check=True)
    done = subprocess.run(
        [sys.executable, DEMO / "chat.py", MODEL, packed, "12"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    assert "12 tokens and their log-probabilities are identical" in done.stdout.splitlines()[-1]
