"""The C program in docs/ compiles without a warning and reads a tensor of a pack."""

import os
import random
import struct
import subprocess
from pathlib import Path

import pytest
from cli_harness import EMBED, NORM, make_bf16, write_shard

ROOT = Path(__file__).parent.parent
BUILD = Path(os.environ["BINADE_LIB"]).parent
NAME = "model.layers.0.self_attn.q_proj.weight"
ROWS, COLS = 256, 384


def start(command: list) -> subprocess.CompletedProcess:
    command = [str(part) for part in command]
    env = {**os.environ, "LD_LIBRARY_PATH": str(BUILD), "DYLD_LIBRARY_PATH": str(BUILD)}
    return subprocess.run(command, capture_output=True, text=True, env=env, check=False)


def run(command: list) -> str:
    done = start(command)
    assert done.returncode == 0, f"{command}\n{done.stderr}{done.stdout}"
    return done.stdout


@pytest.fixture
def program(tmp_path):
    (source,) = (ROOT / "docs").glob("*.c")
    line = f"cc -std=c11 -Wall -Wextra -Werror -I{ROOT}/include"
    run([*line.split(), source, f"-L{BUILD}", "-lbinade", "-o", tmp_path / "x"])
    return tmp_path / "x"


def test_example_reads_a_tensor(program, tmp_path):
    rng = random.Random(3)
    values = [struct.pack("<f", rng.gauss(0, 0.02))[2:] for _ in range(ROWS * COLS)]
    (tmp_path / "model").mkdir()
    tensors = {NAME: ("BF16", [ROWS, COLS], b"".join(values))}
    write_shard(tmp_path / "model/model.safetensors", tensors)
    run([os.environ["BINADE_BIN"], "pack", tmp_path / "model", "--out", tmp_path / "packed"])
    shown = run([program, tmp_path / "packed", NAME])
    first = struct.unpack("<f", b"\0\0" + values[0])[0]
    assert any(float(word) == pytest.approx(first, rel=1e-3) for word in find_numbers(shown))


def test_example_refuses_what_is_not_bf16(program, tmp_path):
    tensors = {NORM: ("F32", [2], bytes(8)), EMBED: ("BF16", [1, 2], make_bf16(2, 1))}
    write_shard(tmp_path / "model.safetensors", tensors)
    assert run([program, tmp_path, EMBED])
    done = start([program, tmp_path, NORM])
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"{NORM} is F32, not BF16\n"


def find_numbers(text: str) -> list[str]:
    def is_number(word: str) -> bool:
        try:
            float(word)
        except ValueError:
            return False
        return True

    return [word for word in text.replace(",", " ").split() if is_number(word)]
