"""A header of 1.3 million tensors is packed, verified and restored in seconds, in memory of a few
times the header's size.
"""

import hashlib
import subprocess
import sys

from checkpoints import SHARD
from cli_harness import BINADE

NTENSORS = 1_300_000
# Runs a command; prints its exit status and the most memory it had resident, in bytes. In a process
# of its own, which is small: the system counts what the parent of a command had.
MEASURE = """
import resource, subprocess, sys
nothing = subprocess.DEVNULL
status = subprocess.run(sys.argv[1:], stdin=nothing, stdout=nothing).returncode
unit = 1 if sys.platform == "darwin" else 1024
print(status, unit * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def measure(*args):
    """The most memory resident while the command ran, in bytes."""
    argv = [sys.executable, "-c", MEASURE, BINADE, *map(str, args)]
    p = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=True)
    status, nbytes = p.stdout.split()
    assert status == "0", p.stderr
    return int(nbytes)


def write_large_model(directory):
    """Tensors of one byte each; returns the header's length."""
    directory.mkdir()
    with open(directory / SHARD, "w+b") as f:
        f.write(bytes(8))
        f.write(b"{")
        for start in range(0, NTENSORS, 10000):
            entries = [
                f'"layers.{i}.x":{{"dtype":"U8","shape":[1],"data_offsets":[{i},{i + 1}]}}'
                for i in range(start, start + 10000)
            ]
            f.write((",\n" if start else "").encode() + ",".join(entries).encode())
        f.write(b"}")
        header_nbytes = f.tell() - 8
        f.write(bytes(i % 251 for i in range(251)) * (NTENSORS // 251 + 1))
        f.truncate(8 + header_nbytes + NTENSORS)
        f.seek(0)
        f.write(header_nbytes.to_bytes(8, "little"))
    return header_nbytes


def hash_file(path):
    with open(path, "rb") as f:
        digest = hashlib.sha256()
        while data := f.read(1 << 20):
            digest.update(data)
    return digest.hexdigest()


def test_large_header(tmp_path):
    model, packed, out = tmp_path / "model", tmp_path / "packed", tmp_path / "out"
    header_nbytes = write_large_model(model)
    peaks = {
        "pack": measure("pack", model, "--out", packed),
        "verify": measure("verify", packed, "--against", model),
        "unpack": measure("unpack", packed, "--out", out),
        "info": measure("info", packed),
    }
    for command, peak in peaks.items():
        print(f"{command}: {peak / header_nbytes:.1f} times the header")
    assert hash_file(out / SHARD) == hash_file(model / SHARD)
    # The published package would reserve 220 MB, which other readers refuse.
    with open(packed / SHARD, "rb") as f:
        packed_header_nbytes = int.from_bytes(f.read(8), "little")
        assert packed_header_nbytes < 100_000_000
        header = f.read(packed_header_nbytes)
    assert header[:1] + header[-2:] == b"{}}"
    del header
    assert max(peaks.values()) < 7 * header_nbytes, peaks
