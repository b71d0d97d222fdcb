"""Runs many jobs of the published package binade==0.1.1 in one process; tests/test_oracle.py starts
it with the Python that has the package. Jobs come as a JSON list on standard input:

    {"do": "pack", "source": DIR, "out": DIR, "format": "1" or "2", "classes": [...]}
    {"do": "compare", "packed": DIR, "original": DIR}

For each job one item of the JSON list on standard output: null if all went well, else what failed.
"""

import json
import sys
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from pathlib import Path

import binade.pack
import binade.st
import binade.unpack


def pack(job):
    source = binade.st.resolve(job["source"])
    binade.pack.pack_model(
        source,
        Path(job["out"]),
        tuple(job["classes"]),
        version=job["format"],
        log=lambda text: None,
    )


def read_bytes(info):
    with open(info.file, "rb") as f:
        f.seek(info.offset)
        return f.read(info.nbytes)


def compare(job):
    """Every tensor as the package reads it from the pack, with the original's bytes."""
    packed = binade.unpack.PackedModel(job["packed"], gpu=False)
    originals = {info.name: info for info in binade.st.list_tensors(job["original"])}
    assert sorted(packed.names()) == sorted(originals), "other names"
    for name, original in originals.items():
        assert tuple(packed.info(name).shape) == original.shape, f"{name!r}: other shape"
        dtype = "BF16" if name in packed.packed else packed.info(name).dtype
        assert dtype == original.dtype, f"{name!r}: other dtype"
        assert packed.tensor(name).tobytes() == read_bytes(original), f"{name!r}: other values"


def run(job):
    try:
        {"pack": pack, "compare": compare}[job["do"]](job)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


if __name__ == "__main__":
    assert version("binade") == "0.1.1"
    with ProcessPoolExecutor() as pool:
        results = list(pool.map(run, json.load(sys.stdin)))
    json.dump(results, sys.stdout)
