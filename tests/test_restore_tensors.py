"""unpack restores every tensor, whatever its name, dtype and shape, and whatever the options."""

import json

import pytest
from checkpoints import (
    DTYPES,
    INDEX,
    SHARD,
    Tensor,
    make_tensor,
    make_weight,
    read_safetensors,
    read_tree,
    write_safetensors,
)
from cli_harness import assert_failure, run, run_well
from restoring import (
    EMBED,
    MANIFEST,
    assert_restored,
    count_packed,
    make_rng,
    make_tensors,
    write_model,
)

# ---- Tensors

NAMES = [
    "",
    "\0",
    "nul\0inside",
    "new\nline",
    "\x7f\x80\x9f",
    "\u202e\ufeff\uffff",
    "\U0001f600\U0010ffff",
    "../../etc/passwd",
    "/",
    "x.weight",
    "x.weight.raw",
    "x.weight.table",
    "x.weight.meta",
    "x.weight.idx",
    "x.weight.esc",
    "x.weight.bits",
    "x.weight.roff",
    "x.weight.raw.raw",
    "raw",
    ".raw",
    ".weight",
    "a" * 100000,
]


@pytest.mark.parametrize("form", "12")
@pytest.mark.parametrize("packable", [False, True])
def test_names(tmp_path, packable, form):
    rng = make_rng(21)
    dtype = "BF16" if packable else "U8"
    tensors = [make_tensor(name, dtype, (2, 3), rng) for name in NAMES]
    model = write_model(tmp_path / "m", tensors)
    options = ["--classes", "other", "--format", form]
    packed, result = assert_restored(model, tmp_path, *options)
    if packable:
        assert "x.weight is carried unpacked" in result.err
        assert 0 < count_packed(packed) < len(NAMES)


@pytest.mark.parametrize("form", "12")
@pytest.mark.parametrize("suffix", ["raw", "table", "meta", "idx", "esc", "bits", "roff"])
def test_name_of_a_part(tmp_path, suffix, form):
    """A tensor x beside one that is named like a part of it, in the same or another shard."""
    rng = make_rng(22)
    x = make_weight(EMBED, (4, 300), rng)
    other = make_tensor(f"{EMBED}.{suffix}", "U8", (5,), rng)
    collides = suffix in ("raw", "table", "meta", *(["idx", "esc"], ["bits", "roff"])[form == "2"])
    for name, shards in {"one": [[x, other]], "two": [[other], [x]]}.items():
        model = tmp_path / name / "m"
        model.mkdir(parents=True)
        for i, tensors in enumerate(shards):
            write_safetensors(model / f"{i}.safetensors", tensors)
        packed, _ = assert_restored(model, tmp_path / name, "--format", form)
        assert count_packed(packed) == (not collides)


@pytest.mark.parametrize("dtype", [*DTYPES, "X99", "", "größe"])
def test_dtypes(tmp_path, dtype):
    rng = make_rng(23)
    tensors = [make_weight(EMBED, (3, 64), rng)]
    for i, shape in enumerate([(8,), (4, 8), (0,), (0, 8), (8, 0), (2, 0, 4), (1, 1, 1, 1, 8)]):
        if dtype in DTYPES:
            tensors.append(make_tensor(f"t{i}", dtype, shape, rng))
        else:  # nobody knows how many bytes such elements take
            tensors.append(Tensor(f"t{i}", dtype, shape, rng.bytes(i)))
    if dtype in DTYPES and DTYPES[dtype] % 8 == 0:
        tensors.append(make_tensor("scalar", dtype, (), rng))
    assert_restored(write_model(tmp_path / "m", tensors), tmp_path)


@pytest.mark.parametrize("form", "12")
def test_shapes(tmp_path, form):
    rng = make_rng(24)
    shapes = [(), (0,), (1,), (0, 0), (0, 5), (5, 0), (1, 1), (0, 3, 4), (3, 0, 4), (3, 4, 0)]
    shapes += [(7, 1), (1, 127), (1, 128), (1, 129), (2, 3, 5), (2, 3, 5, 7), (1,) * 30]
    tensors = [make_weight(f"t{i}", shape, rng) for i, shape in enumerate(shapes)]
    model = write_model(tmp_path / "m", tensors)
    assert_restored(model, tmp_path, "--classes", "other", "--format", form)


@pytest.mark.parametrize("threads", "13")
@pytest.mark.parametrize("form", "12")
@pytest.mark.parametrize("kind", ["normal", "bits", "special"])
def test_long_rows(tmp_path, kind, form, threads):
    """Rows, and tensors, longer than what is coded at a time."""
    rng = make_rng(25)
    tensors = [
        make_weight("row", (1, 400000), rng, kind),
        make_tensor("carried", "F32", (700001,), rng),
        make_weight("rows", (3, 1000001), rng, kind),
        make_weight("many", (9000, 77), rng, kind),
    ]
    model = write_model(tmp_path / "m", tensors)
    options = ["--classes", "other", "--format", form, "--threads", threads]
    assert_restored(model, tmp_path, *options)


@pytest.mark.parametrize("form", "12")
def test_many_tiny_tensors(tmp_path, form):
    rng = make_rng(26)
    tensors = [
        make_weight(f"{i}.{EMBED}", (1, i % 5 + 1), rng)
        if i % 2
        else make_tensor(f"{i}.ids", "U8", (i % 3,), rng)
        for i in range(20000)
    ]
    order = [int(i) for i in rng.permutation(len(tensors))]
    model = write_model(tmp_path / "m", tensors, data_order=order)
    packed, _ = assert_restored(model, tmp_path, "--format", form)
    assert count_packed(packed) == 10000


# ---- Options


def test_nothing_packable(tmp_path):
    model = write_model(tmp_path / "m", [make_tensor("x", "F32", (300, 300), make_rng(1))])
    packed, _ = assert_restored(model, tmp_path)
    assert count_packed(packed) == 0


@pytest.mark.parametrize(
    ("options", "npacked"),
    [
        ([], 2),
        (["--format", "1"], 2),
        (["--exclude", "*"], 0),
        (["--exclude", "2.*"], 1),
        (["--exclude", "model.*", "--exclude", "2.*"], 0),
        (["--exclude", "model"], 2),
        (["--classes", "linear"], 0),
        (["--classes", "other,mm"], 0),
        (["--classes", "linear,embed,ple,mm,other"], 2),
        (["--threads", "1"], 2),
        (["--threads", "7"], 2),
    ],
)
def test_options(tmp_path, options, npacked):
    packed, _ = assert_restored(write_model(tmp_path / "m", make_tensors()), tmp_path, *options)
    assert count_packed(packed) == npacked


def test_threads_change_nothing(tmp_path):
    tensors = [make_weight(f"{i}.{EMBED}", (900, 500), make_rng(i), "wide") for i in range(4)]
    model = write_model(tmp_path / "m", tensors)
    trees = []
    for threads in ("1", "2", "5"):
        run_well("pack", model, "--out", tmp_path / threads, "--threads", threads)
        trees.append(read_tree(tmp_path / threads))
        manifest = json.loads(trees[-1].pop(MANIFEST))
        del manifest["seconds"], manifest["xxh3"]
        trees[-1]["manifest"] = manifest
    assert trees[0] == trees[1] == trees[2]


@pytest.mark.parametrize("form", "12")
def test_without_records(tmp_path, form):
    """Restores the tensors of each shard, and the other files."""
    model, packed, out = tmp_path / "m", tmp_path / "packed", tmp_path / "out"
    options = {"gaps": {1: b"gap"}, "trailing": b"x", "metadata": {"a": "b"}, "spacing": "odd"}
    write_model(model, make_tensors(), data_order=[3, 2, 0, 1], **options)
    write_safetensors(model / "n.safetensors", [make_tensor("n", "F4", (3, 2), make_rng(1))])
    (model / "sub").mkdir()
    (model / "sub" / "x").write_bytes(b"x")
    run_well("pack", model, "--out", packed, "--no-hash", "--format", form)
    assert "records" not in json.loads((packed / MANIFEST).read_bytes())
    result = run_well("verify", packed, "--against", model)
    assert "structure sound, original not proven" in result.out
    assert run_well("unpack", packed, "--out", out, "--json").json["restored"] == "tensors"
    assert sorted(read_tree(out)) == sorted([*read_tree(model), INDEX])
    for name in (SHARD, "n.safetensors"):
        assert read_safetensors(out / name) == read_safetensors(model / name)
    for name in ("config.json", "sub/x"):
        assert (out / name).read_bytes() == (model / name).read_bytes()


def test_force(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    write_model(first, make_tensors(1))
    write_model(second, make_tensors(2), config=b"other")
    packed, out = tmp_path / "packed", tmp_path / "out"
    run_well("pack", first, "--out", packed)
    before = read_tree(packed)
    assert_failure(run("pack", second, "--out", packed), 2)
    assert read_tree(packed) == before
    run_well("pack", second, "--out", packed, "--force")
    run_well("unpack", packed, "--out", out)
    assert read_tree(out) == read_tree(second)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["first", "out", "packed", "second"]


def test_force_replaces_packs_only(tmp_path):
    model, other = write_model(tmp_path / "m", make_tensors()), tmp_path / "other"
    other.mkdir()
    (other / "precious").write_bytes(b"x")
    assert_failure(run("pack", model, "--out", other, "--force"), 2)
    assert_failure(run("pack", model, "--out", model, "--force"), 2)
    assert read_tree(other) == {"precious": b"x"}
    assert_restored(model, tmp_path)


@pytest.mark.parametrize("change", ["flip", "absent", "more", "longer"])
def test_against_another(tmp_path, change):
    """verify --against tells an original that differs anywhere."""
    gaps = {1: bytes(9), 2: b"gap"}
    model = write_model(tmp_path / "m", make_tensors(), gaps=gaps, trailing=b"end")
    (model / "sub").mkdir()
    (model / "sub" / "x").write_bytes(b"some text")
    (model / INDEX).write_text('{"weight_map": {"a": "model.safetensors"}}')
    packed = tmp_path / "packed"
    run_well("pack", model, "--out", packed)
    rng = make_rng(31)
    for path, data in read_tree(model).items():
        places = rng.integers(0, len(data), 20) if change == "flip" else [0]
        for place in places:
            altered = bytearray(data)
            altered[place] ^= 1 << int(rng.integers(8))
            target = model / path
            if change == "flip":
                target.write_bytes(altered)
            elif change == "absent":
                target.unlink()
            elif change == "longer":
                target.write_bytes(data + b"\n")
            else:
                target = model / f"{path}.more"
                target.write_bytes(b"")
            result = run("verify", packed, "--against", model)
            assert result.code == 1, (path, place, result.err)
            if change == "more":
                target.unlink()
            else:
                target.write_bytes(data)
    run_well("verify", packed, "--against", model)
