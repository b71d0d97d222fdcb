"""unpack restores every regular file byte for byte, whatever headers and directories look like."""

import base64
import hashlib
import json
import os

import pytest
from checkpoints import (
    INDEX,
    SHARD,
    make_tensor,
    make_weight,
    read_tree,
    write_index,
    write_safetensors,
)
from cli_harness import run, run_well, write_shard
from restoring import (
    CONFIG,
    EMBED,
    MANIFEST,
    assert_restored,
    count_packed,
    make_rng,
    make_tensors,
    read_records,
    write_model,
)

MIB = 1 << 20


# ---- Headers, gaps, trailing bytes


@pytest.mark.parametrize("ensure_ascii", [False, True])
@pytest.mark.parametrize("spacing", ["compact", "spaced", "odd"])
@pytest.mark.parametrize(
    ("metadata", "at"),
    [
        (None, 0),
        ({}, 0),
        ({"format": "pt"}, 0),
        ({"größe": "\U0001f600\0\u2028", "": "", 'q"\\': "\n"}, 2),
        ({"format": "pt", "long": "x" * 5000}, 4),
    ],
)
def test_headers(tmp_path, metadata, at, spacing, ensure_ascii):
    options = {"metadata": metadata, "metadata_at": at, "spacing": spacing}
    tensors = [*make_tensors(), make_tensor("größe\u2028", "U8", (1,), make_rng(1))]
    options |= {"ensure_ascii": ensure_ascii, "padding": 13}
    assert_restored(write_model(tmp_path / "m", tensors, **options), tmp_path)


@pytest.mark.parametrize(
    "keys",
    [
        ("shape", "data_offsets", "dtype"),
        ("data_offsets", "dtype", "shape"),
        ("shape", "dtype", "data_offsets"),
    ],
)
def test_order_of_members(tmp_path, keys):
    model = write_model(tmp_path / "m", make_tensors(), keys=keys, data_order=[3, 1, 0, 2])
    assert_restored(model, tmp_path)


PIECE = 3 << 18  # a longer gap is recorded in several pieces
GAPS = {
    "one byte": {1: b"\1"},
    "one zero": {2: b"\0"},
    "in front": {0: b"front"},
    "everywhere": {0: b"a", 1: b"bc", 2: bytes(3), 3: b"defg"},
    "zeros, large": {2: bytes(3 * MIB + 1)},
    "bytes, large": {2: make_rng(5).bytes(3 * MIB + 1)},
    "zeros and bytes": {1: bytes(MIB) + b"x" + bytes(MIB), 3: bytes(5) + b"x"},
    "a piece": {1: make_rng(6).bytes(PIECE)},
    "a piece and one": {1: make_rng(7).bytes(PIECE + 1), 2: bytes(PIECE + 1)},
    "a piece less one": {1: make_rng(8).bytes(PIECE - 1), 2: bytes(PIECE)},
    "two pieces": {3: make_rng(9).bytes(2 * PIECE)},
}


@pytest.mark.parametrize("name", GAPS)
def test_gaps(tmp_path, name):
    assert_restored(write_model(tmp_path / "m", make_tensors(), gaps=GAPS[name]), tmp_path)


@pytest.mark.parametrize("name", GAPS)
@pytest.mark.parametrize("count", [0, 1, 4])
def test_trailing(tmp_path, count, name):
    """Bytes behind the last tensor, even if there is none."""
    trailing = b"".join(GAPS[name].values())
    model = write_model(tmp_path / "m", make_tensors()[:count], trailing=trailing)
    assert_restored(model, tmp_path)


def test_gaps_are_kept_small(tmp_path):
    """Zeros need no room in the manifest, other bytes only that of base64."""
    data = make_rng(4).bytes(MIB)
    options = {"gaps": {1: bytes(50 * MIB)}, "trailing": data}
    packed, _ = assert_restored(write_model(tmp_path / "m", make_tensors(), **options), tmp_path)
    assert (packed / MANIFEST).stat().st_size < 4 * MIB / 3 + 20000
    gaps = read_records(packed)[SHARD]["gaps"]
    assert b"".join(base64.b64decode(text) for _, _, text in gaps if text) == data


@pytest.mark.parametrize("seed", range(10))
def test_random_order(tmp_path, seed):
    """Data in any order, with empty tensors anywhere and gaps between."""
    rng = make_rng(11, seed)
    tensors = []
    for i in range(30):
        tensors.append(make_tensor(f"{i}.c", "I16", (int(rng.integers(0, 3)),), rng))
        tensors.append(make_weight(f"{i}.{EMBED}", (int(rng.integers(0, 3)), 65), rng))
    order = [int(i) for i in rng.permutation(60)]
    gaps = {int(k): rng.bytes(int(rng.integers(0, 9))) for k in rng.integers(0, 60, 20)}
    model = write_model(tmp_path / "m", tensors, data_order=order, gaps=gaps)
    assert_restored(model, tmp_path, "--format", str(seed % 2 + 1))


# ---- Directories


def test_files_of_all_kinds(tmp_path):
    model = write_model(tmp_path / "m", make_tensors())
    for path, data in {
        "README.md": b"# \xff not UTF-8 \0\n",
        "empty": b"",
        "sub/empty.json": b"",
        "a/b/c/d/deep.bin": os.urandom(300000),
        ".gitattributes": b"*.bin",
        ".hidden/file": b"x",
        "sub/model.onnx": b"onnx",
        "sub/other.safetensors": b"no safetensors file",
        "sub/binade_pack.json": b"{}",
        "sub/model.safetensors.index.json": b"[]",
        "._model.safetensors": b"made by macOS",
        "größe \n\t'\"\\.txt": b"odd name",
        "x.partial": b"",
        "config.json.lock": b"lock",
    }.items():
        (model / path).parent.mkdir(parents=True, exist_ok=True)
        (model / path).write_bytes(data)
    assert_restored(model, tmp_path)


def test_without_config(tmp_path):
    assert_restored(write_model(tmp_path / "m", make_tensors(), config=None), tmp_path)


def test_left_out(tmp_path):
    """.git and .cache, at any depth, links to directories, sockets and the like: with a note."""
    model = write_model(tmp_path / "m", make_tensors())
    expected = read_tree(model)
    for path in (".git/config", ".cache/huggingface/x.lock", "sub/.git/HEAD", "sub/.cache/x"):
        (model / path).parent.mkdir(parents=True)
        (model / path).write_bytes(b"x")
    (model / "link").symlink_to("sub")
    os.mkfifo(model / "fifo")
    expected_notes = [".git", ".cache", "sub/.git", "sub/.cache", "link", "fifo"]
    packed = tmp_path / "packed"
    result = run_well("pack", model, "--out", packed)
    for name in expected_notes:
        assert f"left out: {name} (" in result.err
    run_well("unpack", packed, "--out", tmp_path / "out")
    assert read_tree(tmp_path / "out") == expected
    assert run_well("verify", packed, "--against", model, "--json").json["equal"] is True


def test_shards_and_index(tmp_path):
    """Shards that the index does not list are carried as they are."""
    model = tmp_path / "m"
    model.mkdir()
    shards = {"b-1.safetensors": make_tensors(1), "größe 2.safetensors": []}
    shards["größe 2.safetensors"] = [make_weight("lm_head.weight", (3, 5), make_rng(2))]
    for name, tensors in shards.items():
        write_safetensors(model / name, tensors)
    write_index(model, shards)
    write_safetensors(model / "unlisted.safetensors", make_tensors(3))
    (model / "broken.safetensors").write_bytes(b"\xff" * 20)
    packed, _ = assert_restored(model, tmp_path)
    assert count_packed(packed) == 3
    assert (packed / "unlisted.safetensors").read_bytes() == (
        model / "unlisted.safetensors"
    ).read_bytes()


INDEX_TEXTS = {
    "short": '{"weight_map":{"first":"model.safetensors"}}',
    "spaced": '\r\n{ "x": [1.5e+3, null, "\\u00e9é"],\r\n"weight_map":{"" : "model.safetensors"} }',
    "escaped": '{"metadata": {"size": "many"}, "weight_map": {"": "model\\u002esafetensors"}}\n',
}


@pytest.mark.parametrize("name", INDEX_TEXTS)
def test_index_text(tmp_path, name):
    model = write_model(tmp_path / "m", make_tensors())
    (model / INDEX).write_bytes(INDEX_TEXTS[name].encode())
    assert_restored(model, tmp_path)


def test_shards_without_tensors(tmp_path):
    model = write_model(tmp_path / "m", make_tensors())
    write_safetensors(model / "empty.safetensors", [], metadata={"format": "pt"})
    write_safetensors(model / "zzz.safetensors", [], padding=3, trailing=b"behind")
    assert_restored(model, tmp_path)


def test_no_tensors(tmp_path):
    model = tmp_path / "m"
    model.mkdir()
    write_safetensors(model / SHARD, [], spacing="odd")
    assert_restored(model, tmp_path)


def write_in_folders(model, names):
    shards = {}
    for i, name in enumerate(names):
        tensors = [make_weight(f"{i}.{EMBED}", (5, 100), make_rng(i))]
        (model / name).parent.mkdir(parents=True, exist_ok=True)
        write_safetensors(model / name, tensors)
        shards[name] = tensors
    write_index(model, shards)
    (model / "config.json").write_bytes(CONFIG)


@pytest.mark.parametrize(
    "names",
    [
        ["sub/model.safetensors"],
        ["sub/model.safetensors", "model.safetensors"],
        ["a/model.safetensors", "b/model.safetensors", "b/c/model.safetensors"],
        ["a/b.safetensors", "a/c.safetensors", "c.safetensors"],
        ["a.safetensors/a.safetensors", "a.safetensors/b.safetensors"],
        ["a.safetensors/a.safetensors/a.safetensors", "b/a.safetensors"],
    ],
)
def test_shards_in_folders(tmp_path, names):
    """Several shards may have the same name in different folders."""
    write_in_folders(tmp_path / "m", names)
    packed, _ = assert_restored(tmp_path / "m", tmp_path)
    assert count_packed(packed) == len(names)


def test_shard_in_a_folder_beside_an_unlisted_one(tmp_path):
    write_in_folders(tmp_path / "m", ["sub/model.safetensors"])
    write_safetensors(tmp_path / "m" / SHARD, make_tensors(5))
    packed, _ = assert_restored(tmp_path / "m", tmp_path)
    assert count_packed(packed) == 1


def write_hub_cache(cache):
    """As huggingface_hub lays out a download: snapshots of links to blobs."""
    commit = "0123456789abcdef0123456789abcdef01234567"
    repo = cache / "models--org--name"
    snapshot = repo / "snapshots" / commit
    write_model(repo / "files", make_tensors())
    (repo / "files" / "sub").mkdir()
    (repo / "files" / "sub" / "notes.txt").write_bytes(b"notes")
    (repo / "blobs").mkdir()
    for path, data in read_tree(repo / "files").items():
        blob = repo / "blobs" / hashlib.sha256(data).hexdigest()
        blob.write_bytes(data)
        (snapshot / path).parent.mkdir(parents=True, exist_ok=True)
        (snapshot / path).symlink_to(os.path.relpath(blob, (snapshot / path).parent))
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text(commit)
    return snapshot


@pytest.mark.parametrize("as_id", [False, True])
def test_hub_cache(tmp_path, as_id):
    snapshot = write_hub_cache(tmp_path / "cache")
    if not as_id:
        assert_restored(snapshot, tmp_path)
        return
    env = {**os.environ, "HF_HUB_CACHE": str(tmp_path / "cache")}
    packed, out = tmp_path / "packed", tmp_path / "out"
    run_well("pack", "org/name", "--revision", "0123", "--out", packed, env=env)
    run_well("unpack", packed, "--out", out)
    assert read_tree(out) == read_tree(snapshot)
    source = json.loads((packed / MANIFEST).read_bytes())["source"]
    assert (source["repo_id"], source["revision"]) == ("org/name", snapshot.name)


def test_a_difference_names_its_tensor(tmp_path):
    """Small tensors are moved together: it is not the first of them that differs."""
    model, packed = tmp_path / "model", tmp_path / "packed"
    model.mkdir()
    tensors = {name: ("U8", [3], b"abc") for name in ("one", "two", "three")}
    write_shard(model / "model.safetensors", tensors)
    run_well("pack", model, "--out", packed)
    data = (model / "model.safetensors").read_bytes()
    (model / "model.safetensors").write_bytes(data[:-4] + b"C" + data[-3:])
    result = run("verify", packed, "--against", model)
    assert result.code == 1
    assert f"tensor two: byte {len(data) - 4} of the file is 0x43" in result.err
