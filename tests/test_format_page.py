"""docs/FORMAT.md is true and enough: its example is what the command writes, and a plain decoder
written from it alone restores what the command packs.
"""

import ctypes
import hashlib
import json
import os
import random
import re
import struct
from pathlib import Path

import plain_decoder
import pytest
from cli_harness import SHARD, run_well, write_shard

PAGE = (Path(__file__).parent.parent / "docs/FORMAT.md").read_text()
EMBED = "model.embed_tokens.weight"
INDEX = "model.safetensors.index.json"


def read_example():
    """{name: its words} of the page's example blocks."""
    example, words = {}, []
    for block in re.findall(r"```example\n(.*?)```", PAGE, re.DOTALL):
        for line in block.splitlines():
            if not line.startswith(" "):
                name, line = line.split(maxsplit=1)
                words = example.setdefault(name, [])
            words += line.split()
    return example


def pack_words(kind, words, base=16):
    return struct.pack(f"<{len(words)}{kind}", *(int(word, base) for word in words))


def example_parts(version):
    page = read_example()
    parts = {
        "raw": pack_words("B", page["raw"]),
        "table": pack_words("B", page["table"]).ljust(256, b"\0"),
        "meta": pack_words("B", page[f"meta-{version}"]),
    }
    if version == 1:
        return parts | {"idx": pack_words("I", page["idx"]), "esc": pack_words("B", page["esc"])}
    return parts | {"bits": pack_words("I", page["bits"]), "roff": pack_words("I", page["roff"])}


@pytest.mark.parametrize("version", [1, 2])
def test_example_is_what_pack_writes(version, tmp_path):
    model, packed = tmp_path / "model", tmp_path / "packed"
    model.mkdir()
    weights = pack_words("H", read_example()["weights"])
    write_shard(model / SHARD, {EMBED: ("BF16", [3, 8], weights)})
    run_well("pack", model, "--out", packed, "--format", version)
    written, _ = plain_decoder.parse_shard((packed / SHARD).read_bytes())
    expected = {f"{EMBED}.{part}": data for part, data in example_parts(version).items()}
    assert {name: data for name, (_, _, data) in written.items()} == expected
    assert list(written) == list(expected)


@pytest.mark.parametrize("version", [1, 2])
def test_example_is_decoded(version):
    weights = pack_words("H", read_example()["weights"])
    assert plain_decoder.decode(version, example_parts(version), 3, 8) == weights


def test_example_in_words():
    """The lines that no part holds: ranks, and planes bit by bit."""
    page = read_example()
    weights = [int(word, 16) for word in page["weights"]]
    ranks = [page["table"].index(f"{weight >> 7 & 255:02x}") for weight in weights]
    assert ranks == [int(word) for word in page["ranks"]]
    planes = re.search(r"planes +(.*)\n +(.*)\n", PAGE)
    for row, word in enumerate(page["bits"]):
        assert int(planes[row + 1].replace(" ", "")[::-1], 2) == int(word, 16)


# ---- Whole packs ---------------------------------------------------------------------------------


def make_weights(rng, count, spread):
    """BF16 whose exponents reach `spread` below the largest, so that many ways to code occur."""
    exponents = (140 - min(int(rng.expovariate(1 / (spread + 1))), 140) for _ in range(count))
    signs_mantissas = (rng.getrandbits(1) << 15 | rng.getrandbits(7) for _ in range(count))
    words = (s | e << 7 for s, e in zip(signs_mantissas, exponents, strict=True))
    return struct.pack(f"<{count}H", *words)


def make_tensors():
    rng = random.Random(8)
    shapes = {f"a{spread}.lm_head.weight": [9, 300] for spread in (0, 1, 2, 4, 9, 40)}
    shapes["long.embed_tokens.weight"] = [2, 70000]
    shapes["narrow.embed_tokens.weight"] = [100, 1]
    shapes["m.experts.down_proj"] = [2, 256, 256]
    tensors = {}
    for spread, (name, shape) in enumerate(shapes.items()):
        count = shape[0] * shape[1] * (shape[2] if shape[2:] else 1)
        tensors[name] = ("BF16", shape, make_weights(rng, count, 3 * spread))
    tensors["flat.embed_tokens.weight"] = ("BF16", [3, 200], bytes(1200))
    tensors["all.embed_tokens.weight"] = ("BF16", [256, 256], struct.pack("<65536H", *range(65536)))
    tensors["nörm\n\x7f\U0001f600.weight"] = ("BF16", [7], rng.randbytes(14))
    tensors["scalar"] = ("F64", [], rng.randbytes(8))
    tensors["none"] = ("I64", [0, 4], b"")
    tensors["eight"] = ("F8_E4M3", [3, 5], rng.randbytes(15))
    return tensors


def write_odd_shard(path, tensors, rng):
    """A header with spacing of its own; gaps between the tensors; bytes behind the last."""
    header, data = {"__metadata__": {"made": "by \u00e4 test"}}, b""
    for i, (name, (dtype, shape, content)) in enumerate(tensors.items()):
        data += rng.randbytes(i % 4) if i % 3 else bytes(i)
        offsets = [len(data), len(data) + len(content)]
        header[name] = {"shape": shape, "data_offsets": offsets, "dtype": dtype}
        data += content
    text = json.dumps(header, indent=3, ensure_ascii=False).encode() + b"\n  "
    path.write_bytes(struct.pack("<Q", len(text)) + text + data + b"the end")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path, rng = tmp_path_factory.mktemp("page") / "model", random.Random(9)
    (path / "sub").mkdir(parents=True)
    tensors = list(make_tensors().items())
    weight_map = {}
    for shard, some in {"a.safetensors": tensors[::2], "b.safetensors": tensors[1::2]}.items():
        write_odd_shard(path / shard, dict(some), rng)
        weight_map |= {name: shard for name, _ in some}
    (path / INDEX).write_text(json.dumps({"weight_map": weight_map}, indent=4) + "\n\n")
    (path / "config.json").write_text("{}")
    (path / "sub" / "notes.txt").write_bytes(rng.randbytes(99))
    return path


@pytest.fixture(scope="module", params=[1, 2])
def packed(request, model):
    path = model.parent / f"packed{request.param}"
    run_well("pack", model, "--out", path, "--format", request.param)
    return path


def test_tensors_are_decoded(packed):
    decoded = {}
    for shard in sorted(packed.glob("*.safetensors")):
        decoded |= plain_decoder.decode_shard(shard.read_bytes())
    assert decoded == make_tensors()


def test_files_are_restored(packed, model):
    files = json.loads((packed / "binade_pack.json").read_bytes())["records"]["files"]
    originals = {str(p.relative_to(model)): p for p in model.rglob("*") if p.is_file()}
    assert {record["path"] for record in files} == set(originals)
    for record in files:
        restored = plain_decoder.restore_file(packed, record)
        assert restored == originals[record["path"]].read_bytes()
        assert len(restored) == record["size"]
        assert hashlib.sha256(restored).hexdigest() == record["sha256"]


def xxh3(data):
    library = ctypes.CDLL(os.environ["BINADE_LIB"])  # finds what the library depends on, too
    library.XXH3_64bits.restype = ctypes.c_uint64
    return f"{library.XXH3_64bits(bytes(data), ctypes.c_size_t(len(data))):016x}"


def test_checksums(packed):
    text = (packed / "binade_pack.json").read_bytes()
    body, seal = text[: -len(b' "xxh3": "0123456789abcdef"\n}\n')], text[-30:]
    assert seal == f' "xxh3": "{xxh3(body)}"\n}}\n'.encode()
    records = json.loads(text)["records"]
    assert records["version"] == 1
    assert records["index_xxh3"] == xxh3((packed / INDEX).read_bytes())
    for record in records["files"]:
        if "xxh3" in record:
            assert record["xxh3"] == xxh3((packed / record["path"]).read_bytes())
        if "shard" in record:
            shard = (packed / record["shard"]).read_bytes()
            length = 8 + struct.unpack_from("<Q", shard)[0]
            assert record["header_xxh3"] == xxh3(shard[:length])
            tensors, _ = plain_decoder.parse_shard(shard)
            assert record["parts_xxh3"] == [xxh3(data) for _, _, data in tensors.values()]


def test_header_layout(packed):
    for path in packed.glob("*.safetensors"):
        shard = path.read_bytes()
        (length,) = struct.unpack_from("<Q", shard)
        header = json.loads(shard[8 : 8 + length])
        text = json.dumps(header, separators=(",", ":"))
        assert shard[8 : 8 + length] == text.encode().ljust(length)
        metadata = header.pop("__metadata__")
        packed_names = json.loads(metadata["binade_tensors"])
        parts = {f"{name}.{s}" for name in packed_names for s in ("raw", "table", "meta")}
        codes = ("idx", "esc") if metadata["binade_version"] == "1" else ("bits", "roff")
        parts |= {f"{name}.{s}" for name in packed_names for s in codes}
        reserve = sum(5 * (len(name) + 160) for name in packed_names)
        reserve += sum(len(name) + 160 for name in header.keys() - parts)
        reserve += len(json.dumps(metadata)) + 4096
        assert length == -(-reserve // 8) * 8
        ends = [0, *(t["data_offsets"][1] for t in header.values())]
        assert [t["data_offsets"][0] for t in header.values()] == ends[:-1]
        assert ends[-1] == len(shard) - 8 - length


# ---- What is packed ------------------------------------------------------------------------------


def names_of_class(cls):
    (line,) = re.findall(rf"^- `{cls}`: (.*?)[;.]$", PAGE, re.DOTALL | re.MULTILINE)
    words = re.findall(r"`([^`]+)`", line)
    if cls == "mm":
        marks = [word for word in words if word != ".NAME."]
        return [f"{mark.strip('.')}.q_proj.weight" for mark in marks]
    if cls == "linear":
        return [f"l.{word}.weight" for word in dict.fromkeys(words) if word != "weight"]
    return [f"x.{word}" for word in words]


def test_classes(tmp_path):
    import binade

    zeros = bytes(2 * 256 * 256)
    classes = {n: cls for cls in ("linear", "embed", "ple", "mm") for n in names_of_class(cls)}
    classes |= {"norm.weight": "other", "l.q_proj.bias": "other", "l.xq_proj.weight": "other"}
    assert len(classes) == 9 + 1 + 2 + 18 + 3
    write_shard(tmp_path / SHARD, {name: ("BF16", [256, 256], zeros) for name in classes})
    with binade.open(tmp_path) as checkpoint:
        assert {name: tensor.cls for name, tensor in checkpoint.items()} == classes
