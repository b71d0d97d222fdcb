"""Checkpoints that lie or make no sense are refused: exit status 1, one sentence that names the
file and the tensor, nothing written, the source as it was."""

import json
import os
import struct

import numpy as np
import pytest
from checkpoints import INDEX, SHARD, make_weight, write_index, write_safetensors
from cli_harness import run_well
from refusals import assert_refused

EMBED = "embed_tokens.weight"
MIB = 1 << 20


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model"
    path.mkdir()
    return path


def make_shard(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def refuse(model, *words, commands=("info", "pack"), code=1):
    """Every command that opens the model must refuse it, and say where."""
    sentences = []
    for command in commands:
        out = ["--out", model.parent / "out"] if command in ("pack", "unpack") else []
        args = [command, model, *out, "--threads", "2"]
        sentences.append(assert_refused(code, [*words, str(model)], *args, place=model.parent))
    return sentences[0]


def entry(shape=(2,), offsets=(0, 2), dtype="U8"):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def text_of(**fields):
    """The text of one entry with fields as they are written."""
    fields = {"dtype": '"U8"', "shape": "[2]", "data_offsets": "[0,2]", **fields}
    return "{" + ",".join(f'"{key}":{value}' for key, value in fields.items()) + "}"


# ---- The header's length


@pytest.mark.parametrize("length", [0, 1, 3, 100, 1 << 20, 1 << 40, 1 << 63, (1 << 64) - 1])
def test_header_length(model, length):
    (model / SHARD).write_bytes(make_shard(b"{}", length=length))
    refuse(model, SHARD, f"{length} bytes")


@pytest.mark.parametrize("nbytes", [0, 1, 7])
def test_no_header(model, nbytes):
    (model / SHARD).write_bytes(bytes(nbytes))
    refuse(model, SHARD, f"{nbytes} bytes")


def test_header_beyond_the_cap(model):
    """Refused by its length, before half a gigabyte is read."""
    with open(model / SHARD, "wb") as f:
        f.write(make_shard(b"{}", length=512 * MIB + 1))
        f.truncate(1024 * MIB)
    refuse(model, SHARD, "536870913", "536870912")


# ---- JSON

TENSOR = b'"x":' + text_of().encode()


@pytest.mark.parametrize(
    "text",
    [
        b"  ",
        b"{ ",
        b"{}}",
        b"{}x",
        b"{}\0\0\0",
        b"[]",
        b"null",
        b'"x"',
        b"{" + TENSOR,
        b"{" + TENSOR + b",}",
        b"{" + TENSOR + b"]",
        b"{," + TENSOR + b"}",
        b"{" + TENSOR.replace(b":", b" ", 1) + b"}",
        b"{" + TENSOR.replace(b'"', b"'") + b"}",
        b"{" + TENSOR.replace(b'"x"', b"x") + b"}",
        b"{" + TENSOR + b"/* */}",
        b'{"x":nul}',
        b'{"x":NaN}',
        b"\xef\xbb\xbf{" + TENSOR + b"}",
        ("{" + TENSOR.decode() + "}").encode("utf-16"),
    ],
)
def test_not_json(model, text):
    (model / SHARD).write_bytes(make_shard(text, b"ab"))
    refuse(model, SHARD, "byte ")


@pytest.mark.parametrize(
    "name",
    [
        *[b"\xff", b"a\xc3", b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\n", b"\x01"],
        *[rb"\x", rb"\u12", rb"\ud800", rb"\udc00", rb"\ud800\u0041", b"\\"],
    ],
)
def test_names_that_are_no_text(model, name):
    (model / SHARD).write_bytes(make_shard(b'{"' + name + b'":' + text_of().encode() + b"}", b"ab"))
    refuse(model, SHARD)
    value = b'{"__metadata__":{"key":"' + name + b'"}}'
    (model / SHARD).write_bytes(make_shard(value))
    refuse(model, SHARD)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (b"{%b,%b}" % (TENSOR, TENSOR), "tensor x"),
        (b"{%b,%b}" % (TENSOR, TENSOR.replace(b'"x"', rb'"\u0078"')), "tensor x"),
        (b'{"__metadata__":{},"__metadata__":{}}', "__metadata__"),
        (b'{"__metadata__":{"a":"b","c":"d","a":"b"}}', "key a"),
        (b'{"x":{"dtype":"U8","dtype":"U8","shape":[2],"data_offsets":[0,2]}}', "tensor x"),
        (b'{"x":{"dtype":"U8","shape":[2],"shape":[2],"data_offsets":[0,2]}}', "tensor x"),
        (b'{"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2],"data_offsets":[0,2]}}', "tensor x"),
    ],
)
def test_duplicate_keys(model, text, word):
    (model / SHARD).write_bytes(make_shard(text, b"ab"))
    refuse(model, SHARD, "twice", word)


@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"a":'])
@pytest.mark.parametrize("where", ["header", "shape", "metadata", "dtype"])
def test_deep_nesting(model, opening, where):
    deep = opening * 300_000
    text = {
        "header": deep,
        "shape": '{"x":' + text_of(shape=deep),
        "dtype": '{"x":' + text_of(dtype=deep),
        "metadata": '{"__metadata__":{"a":' + deep,
    }[where]
    (model / SHARD).write_bytes(make_shard(text.encode(), b"ab"))
    refuse(model, SHARD)


# ---- Fields and numbers


@pytest.mark.parametrize(
    "text",
    [
        "1",
        "null",
        "[]",
        "{}",
        '{"dtype":"U8","shape":[2]}',
        '{"dtype":"U8","data_offsets":[0,2]}',
        '{"shape":[2],"data_offsets":[0,2]}',
        text_of(more="1"),
        text_of(dtype="8"),
        text_of(dtype="null"),
        text_of(dtype=r'"U8\u0000"'),
        text_of(shape="2"),
        text_of(shape='"2"'),
        text_of(shape="{}"),
        text_of(shape="null"),
        text_of(shape="[2,]"),
        text_of(shape="[[2]]"),
        text_of(data_offsets="[]"),
        text_of(data_offsets="[2]"),
        text_of(data_offsets="[0,2,2]"),
        text_of(data_offsets="2"),
        text_of(data_offsets="null"),
        text_of(data_offsets='{"begin":0,"end":2}'),
    ],
)
def test_fields(model, text):
    (model / SHARD).write_bytes(make_shard(f'{{"strange":{text}}}'.encode(), b"ab"))
    refuse(model, SHARD, "tensor strange")


def test_metadata_of_numbers(model):
    (model / SHARD).write_bytes(make_shard(b'{"__metadata__":{"strange":1}}'))
    refuse(model, SHARD, "__metadata__", "strange")


BAD_NUMBERS = ["-1", "-0", "2.0", "2e0", "0.2e1", "1E400", "18446744073709551616", "9" * 100]
NO_NUMBERS = ["02", "+2", "0x2", ".2", "2.", "2e", "-", "true", '"2"', "null", "Infinity"]


@pytest.mark.parametrize("number", BAD_NUMBERS + NO_NUMBERS)
def test_numbers(model, number):
    """Written where 2 stands, which would be right."""
    for fields in ({"shape": f"[{number}]"}, {"data_offsets": f"[0,{number}]"}):
        text = f'{{"strange":{text_of(**fields)}}}'
        (model / SHARD).write_bytes(make_shard(text.encode(), b"ab"))
        refuse(model, SHARD, "tensor strange")


@pytest.mark.parametrize(
    ("dtype", "shape", "offsets"),
    [
        ("U8", [2], [1, 0]),
        ("U8", [2], [2, 4]),
        ("U8", [5], [0, 5]),
        ("U8", [2], [(1 << 64) - 2, 0]),
        ("U8", [(1 << 64) - 2], [2, (1 << 64) - 1]),
        ("U8", [1], [0, 2]),
        ("U8", [3], [0, 2]),
        ("U8", [0], [0, 2]),
        ("BF16", [2], [0, 2]),
        ("BF16", [1, 1, 2], [0, 2]),
        ("BF16", [], [0, 1]),
        ("F64", [1 << 61, 8], [0, 0]),
        ("BF16", [1 << 32, 1 << 32], [0, 0]),
        ("U8", [1 << 32, 1 << 32, 2], [0, 0]),
        ("U8", [(1 << 64) - 1, 2], [0, 2]),
        ("F4", [3], [0, 2]),
        ("F4", [5], [0, 2]),
        ("F6_E2M3", [2], [0, 2]),
    ],
)
def test_shape_and_offsets_disagree(model, dtype, shape, offsets):
    header = {"strange": entry(shape, offsets, dtype)}
    (model / SHARD).write_bytes(make_shard(header, b"abc"))
    refuse(model, SHARD, "tensor strange")


@pytest.mark.parametrize("offsets", [(0, 2), (1, 3), (0, 4), (3, 5)])
def test_overlap(model, offsets):
    header = {
        "a": entry(offsets=(0, 2)),
        "b": entry(offsets=(2, 4)),
        "strange": entry((offsets[1] - offsets[0],), offsets),
    }
    (model / SHARD).write_bytes(make_shard(header, b"abcdef"))
    refuse(model, SHARD, "strange", "overlap")


def test_last_byte_is_missing(model):
    weight = make_weight(EMBED, (30, 40), np.random.default_rng(1))
    write_safetensors(model / SHARD, [weight])
    data = (model / SHARD).read_bytes()
    (model / SHARD).write_bytes(data[:-1])
    refuse(model, SHARD, f"tensor {EMBED}")
    (model / SHARD).write_bytes(data)
    run_well("pack", model, "--out", model.parent / "out")


# ---- Several shards


def write_two(model, a="a", b="b"):
    rng = np.random.default_rng(2)
    shards = {
        "x.safetensors": [make_weight(a, (4, 4), rng)],
        "y.safetensors": [make_weight(b, (4, 4), rng)],
    }
    for name, tensors in shards.items():
        write_safetensors(model / name, tensors)
    return shards


@pytest.mark.parametrize("has_index", [False, True])
def test_tensor_in_two_shards(model, has_index):
    shards = write_two(model, "same", "same")
    if has_index:
        write_index(model, shards)
        text = (model / INDEX).read_text()
        (model / INDEX).write_text(text.replace('"same"', '"other": "x.safetensors", "same"'))
    refuse(model, "y.safetensors", "tensor same")


def test_absent_shard(model):
    write_index(model, write_two(model))
    (model / "y.safetensors").unlink()
    refuse(model, "y.safetensors", INDEX)


@pytest.mark.parametrize("kind", ["directory", "fifo", "link to nothing", "link to a directory"])
def test_shard_that_is_no_file(model, kind):
    write_index(model, write_two(model))
    path = model / "y.safetensors"
    path.unlink()
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to("nowhere" if kind == "link to nothing" else "..")
    refuse(model, "y.safetensors")


def test_no_shards(model):
    refuse(model, code=2)
    (model / "config.json").write_text("{}")
    refuse(model, code=2)


@pytest.mark.parametrize(
    "value",
    [
        "../y.safetensors",
        "sub/../../y.safetensors",
        "sub/../x.safetensors",
        "./x.safetensors",
        ".",
        "..",
        "",
        "/",
        "/etc/y.safetensors",
        "sub//x.safetensors",
        "x.safetensors/",
        "x.safetensors\0",
        "x\0.safetensors",
        "x.txt",
        "absent.safetensors",
        1,
        None,
        True,
        ["x.safetensors"],
        {"x.safetensors": 1},
    ],
)
def test_weight_map(model, value):
    write_two(model)
    (model / "sub").mkdir()
    (model.parent / "y.safetensors").write_bytes((model / "y.safetensors").read_bytes())
    index = {"weight_map": {"a": "x.safetensors", "strange": value}}
    (model / INDEX).write_text(json.dumps(index))
    refuse(model, INDEX)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b" ",
        b"not JSON",
        b"{}",
        b"[]",
        b'{"weight_map":{}',
        b'{"weight_map":[]}',
        b'{"weight_map":null}',
        b'{"weight_map":{"a":"x.safetensors"},"weight_map":{"a":"x.safetensors"}}',
        b'{"weight_map":{"a":"x.safetensors","a":"x.safetensors"}}',
        b'{"metadata":{"a":1,"a":1},"weight_map":{"a":"x.safetensors"}}',
        b'{"weight_map":{"a":"x.safetensors"}}x',
        b'{"weight_map":{"a":"\xff.safetensors"}}',
        b'{"weight_map":{"\xff":"x.safetensors"}}',
        b"\xef\xbb\xbf" + b'{"weight_map":{"a":"x.safetensors"}}',
        b'{"metadata":' + b"[" * 100_000,
    ],
)
def test_index_text(model, text):
    write_two(model)
    (model / INDEX).write_bytes(text)
    refuse(model, INDEX)


def test_file_name_that_is_no_text(model):
    write_two(model)
    with open(os.fsencode(model) + b"/\xff.txt", "wb"):
        pass
    refuse(model, r"\xff.txt")
