"""The command `binade` as a user meets it: options, results, JSON, messages, exit statuses."""

import json
import math
import os
import random
import resource
import struct
from collections import Counter

import pytest
from cli_harness import (
    EMBED,
    Q_PROJ,
    SHARD,
    assert_failure,
    bare_model,
    make_tensors,
    packed_model,
    read_files,
    run,
    run_well,
    tiny_model,
    write_shard,
)

SOUND = "structure sound, original not proven"


# ---- Help, version, options


def test_version():
    result = run_well("--version")
    version = run_well("--version", "--json").json
    assert result.out == f"binade {version['version']} ({version['cpu']} kernels)\n"


def test_cpu_can_be_limited():
    env = {**os.environ, "BINADE_CPU": "plain"}
    assert run_well("--version", "--json", env=env).json["cpu"] == "plain"


def test_help_of_the_whole():
    result = run_well("--help")
    assert result.err == ""
    assert result.out == run_well("-h").out
    for word in ("pack", "unpack", "verify", "info", "Examples:", "Exit status"):
        assert word in result.out


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("pack", "out format classes exclude no-hash force revision"),
        ("unpack", "out revision"),
        ("verify", "against revision"),
        ("info", "revision"),
    ],
)
def test_help_of_a_command(command, options):
    result = run_well(command, "--help")
    assert result.err == ""
    assert result.out.startswith(f"Usage: binade {command} ")
    for option in [*options.split(), "threads", "json", "quiet", "verbose"]:
        assert f"--{option}" in result.out
    assert "Examples:\n  binade " in result.out
    assert max(map(len, result.out.splitlines())) <= 90


def test_help_as_a_command():
    assert run_well("help").out == run_well("--help").out
    for command in ("pack", "unpack", "verify", "info"):
        assert run_well("help", command).out == run_well(command, "--help").out
    assert_failure(run("help", "frobnicate"), 2)


BAD_LINES = """

frobnicate
pack
pack MODEL
pack --out X
unpack MODEL
verify
info
pack MODEL --out
pack MODEL --out=
pack MODEL --out --force
pack MODEL --out -x
pack MODEL --out X --out Y
pack MODEL OTHER --out X
pack MODEL --out X --format 3
pack MODEL --out X --format=02
pack MODEL --out X --classes nonsense
pack MODEL --out X --force=1
pack MODEL --out X --against Y
pack MODEL --ou X
unpack MODEL --out X --force
verify MODEL --out X
info MODEL --exclude X
info MODEL --threads 0
info MODEL --threads -1
info MODEL --threads=-1
info MODEL --threads 1x
info MODEL --threads 99999999999999999999
info MODEL -x
info MODEL -qv
info MODEL -q -v
info MODEL --jsonx
info -- MODEL --json
info absent/model
"""


@pytest.mark.parametrize("line", BAD_LINES.split("\n")[1:-1])
def test_bad_line(line, tmp_path):
    args = [tiny_model() if word == "MODEL" else word for word in line.split()]
    result = run(*args, cwd=tmp_path)
    assert_failure(result, 2)
    assert result.out == ""
    assert list(tmp_path.iterdir()) == []

    as_json = run("--json", *args, cwd=tmp_path)
    assert_failure(as_json, 2)
    error = as_json.json["error"]
    assert error["status"] == "usage"
    assert as_json.err == f"binade: {error['message']}\n"


def test_json_with_a_value_is_an_error_in_json():
    result = run("info", tiny_model(), "--json=1")
    assert_failure(result, 2)
    assert result.json["error"]["message"] == "--json takes no value"


def test_options_stand_anywhere(tmp_path):
    model = tiny_model()
    want = run_well("info", model, "--json", "--threads", "1").out
    for args in (
        ("--json", "info", "--threads=1", model),
        ("info", "--threads", "1", "--json", model),
        ("info", model, "--threads=1", "--json", "-v"),
        ("info", "--json", "--", model),
        ("--json", "--", "info", model),
    ):
        assert run_well(*args).out == want
    (tmp_path / "-m").symlink_to(model)
    assert_failure(run("info", "-m", cwd=tmp_path), 2)
    run_well("info", "--", "-m", cwd=tmp_path)


@pytest.mark.parametrize("arg", [b"no\n\x1b[31m\xffway", b"--\x1b[31m\n\xff", b"\xe2\x80\xae/x"])
def test_messages_are_safe_on_a_terminal(arg, tmp_path):
    assert_failure(run("info", arg, cwd=tmp_path), 2)
    result = run("--json", "info", arg, cwd=tmp_path)
    assert_failure(result, 2)
    assert result.json["error"]["status"] == "usage"


# ---- Commands


def test_pack(tmp_path):
    result = run_well("pack", tiny_model(), "--out", tmp_path / "human")
    assert "bits a weight" in result.out
    assert result.err == ""
    result = run_well("pack", tiny_model(), "--out", tmp_path / "out", "--json").json
    assert result["command"] == "pack"
    assert result["format"] == 2
    assert result["records"] is True
    assert result["path"] == str(tiny_model())
    assert result["out"] == str(tmp_path / "out")
    assert result["input_bytes"] == (tiny_model() / SHARD).stat().st_size
    assert result["output_bytes"] == (tmp_path / "out" / SHARD).stat().st_size
    assert result["packed_weights"] == 256 * 256 + 6400
    bits = result["packed_bits"] / result["packed_weights"]
    assert result["bits_per_weight"] == pytest.approx(bits)
    assert 10 < bits < 12
    assert (result["tensors"], result["tensors_packed"], result["tensors_carried"]) == (4, 2, 2)
    assert result["notes"] == []


def test_pack_options(tmp_path):
    def pack(name, *args):
        return run_well("pack", tiny_model(), f"--out={tmp_path / name}", *args, "--json").json

    one, two = pack("one", "--format=1"), pack("two", "--format", "2")
    assert (one["format"], two["format"]) == (1, 2)
    assert one["bits_per_weight"] > two["bits_per_weight"]
    assert pack("linear", "--classes", "linear")["packed_weights"] == 256 * 256
    assert pack("embed", "--exclude", "*.q_proj.*")["packed_weights"] == 6400
    nothing = pack("nothing", "--exclude=*q_proj*", "--exclude=*embed*")
    assert nothing["packed_weights"] == 0
    assert nothing["bits_per_weight"] is None


def test_pack_force(tmp_path):
    out = tmp_path / "out"
    run_well("pack", tiny_model(), "--out", out, "--format", "1")
    before = read_files(out)
    assert_failure(run("pack", tiny_model(), "--out", out), 2)
    assert read_files(out) == before
    run_well("pack", tiny_model(), "--out", out, "--force")
    assert run_well("info", out, "--json").json["format"] == 2


def test_unpack(tmp_path):
    result = run_well("unpack", packed_model(), "--out", tmp_path / "a")
    assert "2 files restored byte for byte" in result.out
    assert result.err == ""
    assert read_files(tmp_path / "a") == read_files(tiny_model())
    result = run_well("unpack", packed_model(), "--out", tmp_path / "b", "--json").json
    assert (result["restored"], result["files"], result["tensors"]) == ("files", 2, 4)
    result = run_well("unpack", bare_model(), "--out", tmp_path / "c", "--json").json
    assert (result["restored"], result["tensors"]) == ("tensors", 4)
    assert "tensor for tensor" in run_well("unpack", bare_model(), "--out", tmp_path / "d").out


def test_verify():
    packed, model = packed_model(), tiny_model()
    result = run_well("verify", packed)
    assert result.out.startswith(f"{packed}: every one of 2 original files proven by SHA-256 (")
    assert result.out.count("\n") == 1
    assert result.err == ""
    result = run_well("verify", packed, "--json").json
    assert (result["result"], result["files"]) == ("proven", 2)
    assert (result["against"], result["equal"]) == (None, False)
    result = run_well("verify", packed, "--against", model)
    assert result.out.endswith(f"\n{packed}: every file equals the one in {model}\n")
    result = run_well("verify", packed, "--against", model, "--json").json
    assert (result["against"], result["equal"]) == (str(model), True)


def test_verify_against_more_than_the_original(tmp_path):
    for name, data in read_files(tiny_model()).items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "more").write_text("")
    result = run("verify", packed_model(), "--against", tmp_path)
    assert_failure(result, 1)
    assert result.err == f"binade: {tmp_path}/more: the pack has no such file\n"


def test_more_shards_than_open_files_are_usual(tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    for i in range(100):
        tensors = {f"{i}.embed_tokens.weight": ("BF16", [1, 1], bytes(2))}
        write_shard(model / f"{i}.safetensors", tensors)

    def limit():
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 1000))

    run_well("pack", model, "--out", tmp_path / "out", preexec_fn=limit)
    run_well("verify", tmp_path / "out", "--against", model, preexec_fn=limit)


def test_verify_without_records():
    bare = bare_model()
    assert run_well("verify", bare).out.startswith(f"{bare}: {SOUND} (")
    assert run_well("verify", bare, "--json").json["result"] == SOUND
    result = run_well("verify", bare, "--against", tiny_model())
    assert f"{bare}: every tensor equals the one in {tiny_model()}\n" in result.out


def compute_entropy(data):
    counts = Counter(word >> 7 & 255 for (word,) in struct.iter_unpack("<H", data))
    total = sum(counts.values())
    return -sum(n / total * math.log2(n / total) for n in counts.values())


def check_tensor(got, dtype, shape, data, packed):
    assert (got["dtype"], got["shape"], got["original_bytes"]) == (dtype, shape, len(data))
    assert got["packed"] == packed
    if dtype != "BF16":
        assert got["entropy"] is None
        assert got["bits_per_weight"] is None
        return
    assert got["entropy"] == pytest.approx(compute_entropy(data), rel=1e-9)
    assert got["limit"] == pytest.approx(8 + got["entropy"])
    assert got["above_limit"] == pytest.approx(got["bits_per_weight"] - got["limit"], abs=1e-8)
    if not packed:
        assert got["bits_per_weight"] == 16
    elif got["name"] == Q_PROJ:
        assert 0 < got["above_limit"] < 0.5


@pytest.mark.parametrize("which", [tiny_model, packed_model, bare_model])
def test_info(which):
    tensors = make_tensors()
    result = run_well("info", which(), "--json").json
    assert result["format"] == (0 if which == tiny_model else 2)
    assert result["records"] == (which == packed_model)
    assert list(result["classes"]) == ["linear", "embed", "ple", "mm", "other"]
    assert [t["name"] for t in result["tensors"]] == list(tensors)
    for got in result["tensors"]:
        packed = which != tiny_model and got["name"] in (Q_PROJ, EMBED)
        check_tensor(got, *tensors[got["name"]], packed)

    total, linear = result["total"], result["classes"]["linear"]
    for key in ("stored_bytes", "runtime_bytes", "weights"):
        assert total[key] == sum(t[key] for t in result["tensors"])
        assert total[key] == sum(c[key] for c in result["classes"].values())
    assert linear["tensors"] == 1
    assert 12 < linear["runtime_bytes"] * 8 / linear["weights"] < 13
    entropy = sum(t["entropy"] * t["weights"] for t in result["tensors"] if t["weights"])
    assert total["entropy"] == pytest.approx(entropy / total["weights"])


def test_info_for_people():
    result = run_well("info", packed_model())
    assert "a pack of format 2, with records" in result.out
    assert "memory at run time (R4)" in result.out
    assert Q_PROJ not in result.out
    assert "not packed" in run_well("info", tiny_model()).out
    result = run_well("info", "-v", packed_model())
    assert f"{Q_PROJ} [256, 256]\n" in result.out
    assert "evil\\x0a\\x1b[31mred\\x00\\u202e [2]\n" in result.out
    assert "\x1b" not in result.out


def test_quiet(tmp_path):
    for args in (
        ("pack", tiny_model(), "--out", tmp_path / "packed"),
        ("unpack", packed_model(), "--out", tmp_path / "model"),
        ("verify", packed_model()),
    ):
        result = run_well(*args, "-q")
        assert (result.out, result.err) == ("", "")
    assert run_well("info", packed_model(), "-q").out == run_well("info", packed_model()).out
    assert_failure(run("verify", tmp_path / "absent", "--quiet"), 2)


def test_notes_and_tensor_lines(tmp_path):
    model = tmp_path / "model"
    (model / ".cache").mkdir(parents=True)
    for name, data in read_files(tiny_model()).items():
        (model / name).write_bytes(data)
    result = run_well("pack", model, "--out", tmp_path / "a")
    assert result.err.startswith("note: ")
    assert ".cache" in result.err
    assert result.err.count("\n") == 1
    as_json = run_well("pack", model, "--out", tmp_path / "b", "--json")
    assert as_json.err == result.err
    assert [f"note: {note}\n" for note in as_json.json["notes"]] == [result.err]
    assert run_well("pack", model, "--out", tmp_path / "c", "-q").err == ""
    verbose = run_well("pack", model, "--out", tmp_path / "d", "-v")
    assert Q_PROJ in verbose.err
    assert "\x1b" not in verbose.err


# ---- Notes on what is not packed


def pack_notes(model, out, *args):
    return run_well("pack", model, "--out", out, "--json", *args).json["notes"]


def write_model(path, tensors):
    path.mkdir(parents=True)
    write_shard(path / SHARD, tensors)
    return path


def test_note_of_large_matrices_that_are_carried(tmp_path):
    weight = ("BF16", [256, 256], make_tensors()[Q_PROJ][2])
    tensors = {
        "gpt_neox.layers.0.attention.dense.weight": weight,
        "gpt_neox.layers.1.attention.dense.weight": weight,
        "vision_tower.a.weight": weight,
        Q_PROJ: weight,
        "a.norm.weight": ("BF16", [1 << 16], weight[2]),
    }
    model = write_model(tmp_path / "model", tensors)
    (note,) = pack_notes(model, tmp_path / "a")
    assert note == (
        "carried unpacked: 3 large BF16 matrices, 0.4 MB, of class mm, other;"
        " --classes linear,embed,mm,other packs them"
    )
    assert pack_notes(model, tmp_path / "b", "--classes", "linear,embed,mm,other") == []
    assert pack_notes(model, tmp_path / "c", "--exclude", "*dense*") == []


def test_no_note_of_what_nobody_expects_to_be_packed(tmp_path):
    weight = ("BF16", [256, 256], make_tensors()[Q_PROJ][2])
    tensors = {
        "vision_tower.a.weight": weight,
        "model.embed_tokens_per_layer.weight": weight,
        "router.weight": ("BF16", [128, 512], weight[2]),
        "small.weight": ("BF16", [255, 256], weight[2][: 255 * 512]),
        "a.norm.weight": ("BF16", [1 << 16], weight[2]),
        "ids": ("I16", [256, 256], weight[2]),
    }
    assert pack_notes(write_model(tmp_path / "model", tensors), tmp_path / "out") == []


def test_note_of_tensors_that_grow(tmp_path):
    noise = random.Random(5).randbytes(2 * 64 * 64)
    tensors = {"embed_tokens.weight": ("BF16", [64, 64], noise)}
    model = write_model(tmp_path / "model", tensors)
    (note,) = pack_notes(model, tmp_path / "a")
    grown = run_well("info", tmp_path / "a", "--json").json["total"]["stored_bytes"] - len(noise)
    assert grown > 0
    assert note == (
        f"1 packed tensor takes more room than as BF16, together {grown} bytes"
        " (embed_tokens.weight); --exclude carries such tensors as they are"
    )
    assert pack_notes(model, tmp_path / "b", "--exclude", "embed*") == []
    tensors["lm_head.weight"] = tensors["embed_tokens.weight"]
    (note,) = pack_notes(write_model(tmp_path / "two", tensors), tmp_path / "c")
    assert note.startswith(f"2 packed tensors take more room than as BF16, together {2 * grown} ")
    assert "(embed_tokens.weight and others)" in note


def test_note_of_a_pattern_that_matches_nothing(tmp_path):
    args = ["--exclude", "*q_proj*", "--exclude", "*.nothing", "--exclude", "*norm*"]
    notes = pack_notes(tiny_model(), tmp_path / "out", *args, "--exclude", "*.0.*")
    assert notes == ['--exclude "*.nothing" matches no tensor']


def test_note_of_other_shards(tmp_path):
    model = write_model(tmp_path / "model", make_tensors())
    write_model(model / "sub", make_tensors())
    size = (model / SHARD).stat().st_size / 1e6
    (note,) = pack_notes(model, tmp_path / "a")
    assert note == (
        f"carried unpacked: 1 *.safetensors file, {size:.1f} MB, in sub-directories (sub/{SHARD})"
    )
    write_shard(model / "unlisted.safetensors", make_tensors())
    index = {"weight_map": dict.fromkeys(make_tensors(), SHARD)}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    (note,) = pack_notes(model, tmp_path / "b")
    assert note == (
        f"carried unpacked: 2 *.safetensors files, {2 * size:.1f} MB,"
        f" that the index does not list (sub/{SHARD} and others)"
    )
