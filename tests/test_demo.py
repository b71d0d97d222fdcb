"""The demo: converts right to the bit, makes a model that mlx-lm understands, and runs through."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parent.parent
MODEL = Path(os.environ["BINADE_DEMO_MODEL"])
MLX_PYTHON = os.environ.get("MLX_PYTHON")

sys.path.insert(0, str(ROOT / "demo"))
import convert_weights  # noqa: E402

GENERATE = """
import sys
from mlx_lm import generate, load
model, tokenizer = load(sys.argv[1])
question = "What is the capital of France? Answer in one sentence."
messages = [{"role": "user", "content": question}]
prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True)
print([tokenizer.decode([token]) for token in tokenizer.encode("x=1234 h\\u00e9llo")])
print(generate(model, tokenizer, prompt=prompt, max_tokens=30))
"""


def test_rounds_to_nearest_even():
    low = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], dtype=np.uint32)
    for high in (0x3F80, 0x3F81, 0xBF80, 0xBF81, 0x0000, 0x0001, 0x00FF, 0x7F00):
        bits = (np.uint32(high) << 16) | low
        up = high + 1
        tie = up if high % 2 else high
        want = [high, high, high, tie, up, up]
        assert convert_weights.round_to_bf16(bits.view(np.float32)).tolist() == want


def test_undoes_the_rotary_permutation():
    nheads, half = 3, 4
    # Row numbers as GGUF stores them: row i of the first half beside row i of the second.
    stored = [
        head * 2 * half + i + part * half
        for head in range(nheads)
        for i in range(half)
        for part in range(2)
    ]
    rows = np.array(stored, dtype=np.float32)[:, None] * np.ones((1, 5), dtype=np.float32)
    restored = convert_weights.undo_rotary_permutation(rows, nheads)
    assert restored[:, 0].tolist() == list(range(nheads * 2 * half))


if MLX_PYTHON:

    def test_mlx_lm_answers():
        """A wrong permutation, scale, vocabulary or template would give nonsense."""
        done = subprocess.run(
            [MLX_PYTHON, "-c", GENERATE, str(MODEL)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        tokens, answer = done.stdout.split("\n", 1)
        assert tokens == "['x', '=', '1', '2', '3', '4', ' h', 'é', 'llo']"
        assert "capital of France is Paris" in answer


def test_demo_runs_through():
    command = [sys.executable, ROOT / "demo/demo.py", os.environ["BINADE_BIN"], MODEL.parent]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "5 files restored byte for byte from each format" in done.stdout
    assert "format 2" in done.stdout
    assert "format 1" in done.stdout
