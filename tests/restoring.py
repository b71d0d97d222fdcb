"""Packs a checkpoint, restores it and compares the trees, for the tests of that."""

import hashlib
import json

import numpy as np
from checkpoints import SHARD, make_tensor, make_weight, read_tree, write_safetensors
from cli_harness import run_well

MANIFEST = "binade_pack.json"
EMBED = "model.embed_tokens.weight"
CONFIG = b'{ "model_type":"test" }'


def make_rng(*seed):
    return np.random.default_rng(seed)


def make_tensors(seed=0):
    """Two packed, two carried."""
    rng = make_rng(seed)
    return [
        make_tensor("first", "F32", (3,), rng),
        make_weight(EMBED, (9, 333), rng),
        make_tensor("middle", "U8", (2, 5), rng),
        make_weight(f"2.{EMBED}", (4, 128), rng),
    ]


def list_files(tree):
    return {path: hashlib.sha256(data).hexdigest() for path, data in tree.items()}


def read_records(packed):
    return {r["path"]: r for r in json.loads((packed / MANIFEST).read_bytes())["records"]["files"]}


def assert_restored(model, tmp_path, *options, expected=None):
    """Packs, verifies, unpacks; returns the pack and the result of packing."""
    packed, out = tmp_path / "packed", tmp_path / "out"
    expected = read_tree(model) if expected is None else expected
    before = read_tree(model)
    result = run_well("pack", model, "--out", packed, *options)
    report = run_well("verify", packed, "--json").json
    assert (report["result"], report["files"]) == ("proven", len(expected))
    assert run_well("verify", packed, "--against", model, "--json").json["equal"] is True
    report = run_well("unpack", packed, "--out", out, "--json").json
    assert (report["restored"], report["files"]) == ("files", len(expected))
    assert read_tree(out) == expected
    assert not any(path.is_symlink() for path in out.rglob("*"))
    records = read_records(packed)
    assert {path: r["sha256"] for path, r in records.items()} == list_files(expected)
    assert {path: r["size"] for path, r in records.items()} == {
        path: len(data) for path, data in expected.items()
    }
    assert read_tree(model) == before
    return packed, result


def write_model(path, tensors, config=CONFIG, **options):
    path.mkdir(parents=True, exist_ok=True)
    write_safetensors(path / SHARD, tensors, **options)
    if config is not None:
        (path / "config.json").write_bytes(config)
    return path


def count_packed(packed):
    return len(json.loads((packed / MANIFEST).read_bytes())["tensors"])
