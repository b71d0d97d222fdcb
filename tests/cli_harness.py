"""Tiny checkpoints and ways to run the command, for the tests of the command line.

The binary is named by the environment variable BINADE_BIN.
"""

import atexit
import functools
import json
import os
import random
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

BINADE = os.environ["BINADE_BIN"]
SHARD = "model.safetensors"
Q_PROJ = "model.layers.0.self_attn.q_proj.weight"
EMBED = "model.embed_tokens.weight"
NORM = "model.norm.weight"
NASTY = "evil\n\x1b[31mred\x00\u202e"  # what a terminal must never be sent


def make_bf16(count, seed):
    rng = random.Random(seed)
    return b"".join(struct.pack("<f", rng.gauss(0, 0.02))[2:] for _ in range(count))


@functools.cache
def make_tensors():
    """{name: (dtype, shape, data)} in file order."""
    return {
        Q_PROJ: ("BF16", [256, 256], make_bf16(256 * 256, 1)),
        EMBED: ("BF16", [100, 64], make_bf16(6400, 2)),
        NORM: ("BF16", [64], make_bf16(64, 3)),
        NASTY: ("I64", [2], bytes(16)),
    }


def write_shard(path, tensors):
    header, offset = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        end = offset + len(data)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    data = b"".join(data for _, _, data in tensors.values())
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


@functools.cache
def work_dir():
    path = Path(tempfile.mkdtemp(prefix="binade-cli-"))
    atexit.register(shutil.rmtree, path)
    return path


@functools.cache
def tiny_model():
    path = work_dir() / "model"
    path.mkdir()
    write_shard(path / SHARD, make_tensors())
    (path / "config.json").write_text('{ "model_type": "tiny" }\n')
    return path


@functools.cache
def packed_model():
    path = work_dir() / "packed"
    run_well("pack", tiny_model(), "--out", path)
    return path


@functools.cache
def bare_model():
    """A pack without records."""
    path = work_dir() / "bare"
    run_well("pack", tiny_model(), "--out", path, "--no-hash")
    return path


@functools.cache
def large_model():
    """1 GiB of zeros in 64 tensors, as a sparse file: long enough to be stopped on the way."""
    path = work_dir() / "large"
    path.mkdir()
    nbytes, header = 2 * 2048 * 4096, {}
    for i in range(64):
        offsets = [i * nbytes, (i + 1) * nbytes]
        header[f"model.layers.{i}.mlp.up_proj.weight"] = {
            "dtype": "BF16",
            "shape": [2048, 4096],
            "data_offsets": offsets,
        }
    text = json.dumps(header).encode()
    with open(path / SHARD, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        f.truncate(8 + len(text) + 64 * nbytes)
    (path / "config.json").write_text("{}")
    return path


def read_files(path):
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}


class Result:
    def __init__(self, code, out, err):
        self.code = code
        self.out = (out or b"").decode("utf-8", "surrogateescape")
        self.err = (err or b"").decode("utf-8", "surrogateescape")

    @property
    def json(self):
        assert self.out.count("\n") == 1
        assert self.out.isascii()
        return json.loads(self.out)


def run(*args, binary=BINADE, **kwargs):
    kwargs = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "timeout": 120, **kwargs}
    argv = [arg if isinstance(arg, bytes) else str(arg) for arg in (binary, *args)]
    p = subprocess.run(argv, stdin=subprocess.DEVNULL, check=False, **kwargs)
    return Result(p.returncode, p.stdout, p.stderr)


def run_well(*args, **kwargs):
    result = run(*args, **kwargs)
    assert result.code == 0, result.err
    return result


def assert_failure(result, code):
    """Exit status `code` and exactly one printable sentence on standard error."""
    assert result.code == code, result.err
    assert result.err.startswith("binade: ")
    assert result.err.endswith("\n")
    assert not result.err.endswith(".\n")
    assert result.err[:-1].isprintable()
