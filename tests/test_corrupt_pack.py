"""A pack in which anything was changed is refused with exit status 1, and nothing is written: one
flipped bit anywhere, files cut, swapped, absent, taken from another pack.
"""

import functools
import json
import shutil

import pytest
from checkpoints import INDEX, make_tensor, make_weight, read_tree, write_index, write_safetensors
from cli_harness import run, run_well, work_dir
from restoring import EMBED, MANIFEST, make_rng

FORMATS = pytest.mark.parametrize("form", "12")


def write_two_shards(directory, seed):
    rng = make_rng(40, seed)
    shards = {
        "a.safetensors": [
            make_weight(EMBED, (6, 200), rng, "geometric"),
            make_tensor("ids", "I64", (9,), rng),
            make_weight(f"2.{EMBED}", (6, 200), rng, "geometric"),
            make_tensor("none", "F32", (0,), rng),
        ],
        "b.safetensors": [
            make_weight("lm_head.weight", (3, 130), rng, "bits"),
            make_tensor("norm", "BF16", (40,), rng),
        ],
    }
    (directory / "sub").mkdir(parents=True)
    options = {"gaps": {1: bytes(30), 2: rng.bytes(50)}, "metadata": {"a": "b"}}
    write_safetensors(directory / "a.safetensors", shards["a.safetensors"], **options)
    write_safetensors(directory / "b.safetensors", shards["b.safetensors"], trailing=b"behind")
    write_index(directory, shards)
    (directory / "config.json").write_text('{"model_type": "test"}\n')
    (directory / "sub" / "notes.txt").write_text("some notes\n" * 9)
    (directory / "empty").write_bytes(b"")


@functools.cache
def packed_model(form, seed=0):
    """An intact pack; tests work on copies."""
    model, packed = work_dir() / f"corrupt{seed}", work_dir() / f"corrupt{seed}-{form}"
    if not model.exists():
        write_two_shards(model, seed)
    run_well("pack", model, "--out", packed, "--format", form)
    return packed


@pytest.fixture
def packed(form, tmp_path):
    path = tmp_path / "packed"
    shutil.copytree(packed_model(form), path)
    return path


def assert_refused(packed, what, codes=(1,)):
    out = packed.parent / "out"
    for command in (["verify", packed], ["unpack", packed, "--out", out]):
        result = run(*command)
        assert result.code in codes, (what, command[0], result.code, result.err)
        assert result.err.startswith("binade: "), what
        assert result.err.count("\n") == 1, what
        assert result.out == "", what
    assert sorted(path.name for path in packed.parent.iterdir()) == ["packed"], what


def choose_places(rng, nbytes):
    """Both ends of a file, and some fifty places between."""
    if nbytes == 0:
        return []
    ends = [*range(min(nbytes, 20)), *range(max(nbytes - 40, 0), nbytes)]
    return sorted({*ends, *rng.integers(0, nbytes, 50).tolist()})


@FORMATS
def test_flipped_bit(packed, form):
    rng = make_rng(41, int(form))
    count = 0
    for name, data in read_tree(packed).items():
        for place in choose_places(rng, len(data)):
            bit = int(rng.integers(8))
            altered = bytearray(data)
            altered[place] ^= 1 << bit
            (packed / name).write_bytes(altered)
            assert_refused(packed, (name, place, bit))
            count += 1
        (packed / name).write_bytes(data)
    assert count > 300
    run_well("verify", packed)


@FORMATS
def test_every_bit_of_the_seal(packed, form):
    """The manifest's own checksum is no place for a change to hide in."""
    data = (packed / MANIFEST).read_bytes()
    start = data.rindex(b"\n", 0, len(data) - 3)
    for place in range(start, len(data)):
        for bit in range(8):
            altered = bytearray(data)
            altered[place] ^= 1 << bit
            (packed / MANIFEST).write_bytes(altered)
            assert run("verify", packed).code == 1, (place, bit)


@FORMATS
def test_cut_and_longer_files(packed, form):
    for name, data in read_tree(packed).items():
        cuts = [data[:-1], data[: len(data) // 2], data[:5], b""] if data else []
        for altered in [*cuts, data + b"\0", data + b"\n", data + data]:
            if altered == data:
                continue
            (packed / name).write_bytes(altered)
            assert_refused(packed, (name, len(altered), len(data)))
        (packed / name).write_bytes(data)
    run_well("verify", packed)


@FORMATS
def test_absent_files(packed, form):
    for name, data in read_tree(packed).items():
        (packed / name).unlink()
        # Without its manifest a directory is no pack.
        assert_refused(packed, name, (2,) if name == MANIFEST else (1,))
        (packed / name).write_bytes(data)
    run_well("verify", packed)


@FORMATS
def test_file_that_is_a_directory(packed, form):
    for name, data in read_tree(packed).items():
        (packed / name).unlink()
        (packed / name).mkdir()
        assert_refused(packed, name, (1, 2))
        (packed / name).rmdir()
        (packed / name).write_bytes(data)
    run_well("verify", packed)


@FORMATS
def test_swapped_shards(packed, form):
    a, b = packed / "a.safetensors", packed / "b.safetensors"
    a.rename(packed / "c")
    b.rename(a)
    (packed / "c").rename(b)
    assert_refused(packed, "swapped")


@FORMATS
def test_swapped_parts(packed, form):
    """Equally long parts of two tensors, exchanged without touching the header."""
    path = packed / "a.safetensors"
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    swapped = 0
    for part in ("raw", "table", "meta", "roff"):
        if form == "1" and part == "roff":
            continue
        a, b = (
            [start + n for n in header[f"{name}.{part}"]["data_offsets"]]
            for name in (EMBED, f"2.{EMBED}")
        )
        altered = bytearray(data)
        altered[a[0] : a[1]], altered[b[0] : b[1]] = data[b[0] : b[1]], data[a[0] : a[1]]
        if altered == data:
            continue
        path.write_bytes(altered)
        assert_refused(packed, part)
        swapped += 1
    assert swapped >= 2


@FORMATS
def test_files_of_another_pack(packed, form):
    other = packed_model(form, seed=1)
    for name, data in read_tree(packed).items():
        if (other / name).read_bytes() == data:
            assert name in ("config.json", "sub/notes.txt", "empty")
            continue
        shutil.copy(other / name, packed / name)
        assert_refused(packed, name)
        (packed / name).write_bytes(data)
    run_well("verify", packed)


@FORMATS
def test_pack_of_the_other_format(packed, form):
    other = packed_model({"1": "2", "2": "1"}[form])
    for name in ("a.safetensors", INDEX, MANIFEST):
        data = (packed / name).read_bytes()
        shutil.copy(other / name, packed / name)
        assert_refused(packed, name)
        (packed / name).write_bytes(data)
    run_well("verify", packed)


@FORMATS
def test_more_files(packed, form, tmp_path):
    """What the original did not have is left out, with a note."""
    (packed / "more.txt").write_text("more")
    (packed / "sub" / "more.safetensors").write_text("more")
    result = run_well("verify", packed)
    assert "left out: more.txt, " in result.err
    run_well("unpack", packed, "--out", tmp_path / "out")
    assert read_tree(tmp_path / "out") == read_tree(work_dir() / "corrupt0")


@FORMATS
def test_flipped_bits_without_records(form, tmp_path):
    """Without checksums changed weights cannot be told, but whatever happens is orderly."""
    packed_model(form)  # makes the model
    packed = tmp_path / "packed"
    run_well("pack", work_dir() / "corrupt0", "--out", packed, "--format", form, "--no-hash")
    rng = make_rng(42, int(form))
    codes = []
    for name, data in read_tree(packed).items():
        for place in choose_places(rng, len(data))[::2]:
            altered = bytearray(data)
            altered[place] ^= 1 << int(rng.integers(8))
            (packed / name).write_bytes(altered)
            result = run("verify", packed)
            assert result.code in (0, 1, 2), (name, place, result.code)
            assert (result.code == 0) == (result.err == "") or "left out" in result.err
            codes.append(result.code)
        (packed / name).write_bytes(data)
    assert codes.count(1) > 50
