"""Packs without records whose parts are corrupt. No checksum can tell, so the structure must: exit
status 1 with one sentence that names file, tensor and part, never a read out of bounds.

BINADE_ASAN_BIN may name a second binary, built with the address sanitizer, to try as well.
"""

import functools
import json
import os
import struct

import numpy as np
import pytest
from checkpoints import SHARD, Tensor, make_tensor, make_weight, read_header, write_safetensors
from cli_harness import BINADE, run, run_well, work_dir
from refusals import assert_refused

EMBED = "embed_tokens.weight"
PARTS = {"1": ["raw", "table", "meta", "idx", "esc"], "2": ["raw", "table", "meta", "bits", "roff"]}
BINARIES = [BINADE, *filter(None, [os.environ.get("BINADE_ASAN_BIN")])]
FORMATS = pytest.mark.parametrize("form", "12")
# Rows of one tile, of several, of less than one; a row beyond 2^17 weights; more rows than that.
SHAPES = [(5, 128), (4, 333), (7, 3), (2, 140_000), (140_000, 1)]


@functools.cache
def read_pack(form, shape=(4, 333), kind="outliers"):
    """The parts of one packed tensor, and those of a carried one: {name: Tensor}; metadata."""
    work = work_dir() / f"parts-{form}-{shape}-{kind}"
    model, packed = work / "model", work / "packed"
    model.mkdir(parents=True)
    rng = np.random.default_rng(5)
    weight = make_weight(EMBED, shape, rng, "geometric" if kind == "outliers" else kind)
    write_safetensors(model / SHARD, [weight, make_tensor("other", "I64", (3,), rng)])
    run_well("pack", model, "--out", packed, "--no-hash", "--format", form)
    header, start = read_header(packed / SHARD)
    data = (packed / SHARD).read_bytes()
    metadata = header.pop("__metadata__")
    tensors = {}
    for name, entry in header.items():
        begin, end = (start + offset for offset in entry["data_offsets"])
        tensors[name] = Tensor(name, entry["dtype"], tuple(entry["shape"]), data[begin:end])
    return tensors, metadata, json.loads((packed / "binade_pack.json").read_text())


class Pack:
    """A pack that can be altered, and must then be refused."""

    def __init__(self, directory, form, shape=(4, 333), kind="outliers"):
        tensors, metadata, manifest = read_pack(form, shape, kind)
        self.tensors, self.metadata = dict(tensors), dict(metadata)
        self.path, self.form = directory / "packed", form
        self.path.mkdir()
        (self.path / "binade_pack.json").write_text(json.dumps(manifest))

    def data(self, part):
        return bytearray(self.tensors[f"{EMBED}.{part}"].data)

    def words(self, part):
        return np.frombuffer(self.tensors[f"{EMBED}.{part}"].data, "<u4").astype(np.int64)

    def replace(self, part, data, dtype=None, shape=None):
        name = f"{EMBED}.{part}"
        old = self.tensors[name]
        data = np.asarray(data).astype("<u4").tobytes() if isinstance(data, np.ndarray) else data
        if shape is None:
            shape = old.shape if part == "raw" else (len(data) // (4 if old.dtype == "U32" else 1),)
        self.tensors[name] = Tensor(name, dtype or old.dtype, shape, bytes(data))

    def write(self):
        write_safetensors(self.path / SHARD, list(self.tensors.values()), metadata=self.metadata)

    def refuse(self, *words):
        self.write()
        out = self.path.parent / "out"
        commands = [["verify"], ["unpack", "--out", out], ["info", "-v"]]
        for binary in BINARIES:
            for command, *options in commands:
                args = [command, self.path, *options, "--threads", "2"]
                assert_refused(1, [*words, SHARD], *args, place=self.path.parent, binary=binary)


@pytest.fixture
def pack(form, tmp_path):
    return Pack(tmp_path, form)


@FORMATS
@pytest.mark.parametrize("shape", SHAPES)
def test_untouched(form, shape, tmp_path):
    """What the other tests alter is otherwise good."""
    pack = Pack(tmp_path, form, shape)
    pack.write()
    for binary in BINARIES:
        run_well("verify", pack.path, binary=binary)
        run_well("info", "-v", pack.path, binary=binary)


# ---- Sizes, dtypes, shapes


@FORMATS
@pytest.mark.parametrize("shape", SHAPES)
def test_short_and_long_parts(form, shape, tmp_path):
    pack = Pack(tmp_path, form, shape)
    for part in PARTS[form][1:]:
        old = pack.tensors[f"{EMBED}.{part}"]
        data = pack.data(part)
        unit = 4 if part in ("idx", "bits", "roff") else 1
        changes = [data[:-unit], data + bytes(unit), data[: len(data) // 2 // unit * unit], b""]
        for altered in changes:
            if altered == data:
                continue
            pack.replace(part, altered)
            pack.refuse(f"tensor {EMBED}")
        pack.tensors[old.name] = old


@FORMATS
def test_dtypes(pack, form):
    for part in PARTS[form]:
        old = pack.tensors[f"{EMBED}.{part}"]
        for dtype in ("I8", "BOOL", "F8_E4M3", "BF16", "I32", "F32", "X8"):
            size = {"BF16": 2, "I32": 4, "F32": 4}.get(dtype, 1)
            if len(old.data) % size:
                continue
            shape = (len(old.data) // size,)
            pack.replace(part, old.data, dtype, shape)
            pack.refuse(f"tensor {EMBED}", f".{part}")
        pack.tensors[old.name] = old


@FORMATS
def test_shapes(pack, form):
    for part in PARTS[form][1:]:
        old = pack.tensors[f"{EMBED}.{part}"]
        (n,) = old.shape
        for shape in [(n, 1), (1, n), (1, 1, n), *([()] if n == 1 else [])]:
            pack.replace(part, old.data, None, shape)
            pack.refuse(f"tensor {EMBED}", f".{part}")
        pack.tensors[old.name] = old
    raw = pack.tensors[f"{EMBED}.raw"]
    for shape in [(4 * 333,), (333, 4), (2, 666), (4, 333, 1), (1, 4, 333)]:
        pack.replace("raw", raw.data, None, shape)
        pack.refuse(EMBED)
        # If both places agree, the other parts do not; unless there are as many tiles as before.
        pack.metadata["binade_tensors"] = json.dumps({EMBED: shape})
        if shape in [(4 * 333,), (333, 4)]:
            pack.refuse(EMBED)
        pack.metadata["binade_tensors"] = json.dumps({EMBED: [4, 333]})


@FORMATS
def test_absent_parts(pack, form):
    for part in PARTS[form]:
        old = pack.tensors.pop(f"{EMBED}.{part}")
        pack.refuse(f"tensor {EMBED}", f".{part}")
        pack.tensors[old.name] = old


@FORMATS
@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "[]",
        "{",
        "{}}",
        '{"NAME":null}',
        '{"NAME":[]}',
        '{"NAME":[4]}',
        '{"NAME":[4,333,1]}',
        '{"NAME":[333,4]}',
        '{"NAME":[4.0,333]}',
        '{"NAME":[-4,333]}',
        '{"NAME":[4,333],"NAME":[4,333]}',
        '{"NAME":[4,333],"absent":[4,333]}',
        '{"NAME":[4,333],"other":[3]}',
        '{"absent":[4,333]}',
        '{"NAME.raw":[4,333]}',
        "[" * 100_000,
    ],
)
def test_list_of_packed_tensors(pack, text):
    pack.metadata.pop("binade_tensors")
    if text is not None:
        pack.metadata["binade_tensors"] = text.replace("NAME", EMBED)
    pack.refuse()


@FORMATS
def test_other_format(form, tmp_path):
    """Parts of one format under the mark of the other."""
    pack = Pack(tmp_path, form)
    manifest = pack.path / "binade_pack.json"
    other = {"1": "2", "2": "1"}[form]
    text = manifest.read_text().replace(f'"version": "{form}"', f'"version": "{other}"')
    manifest.write_text(text)
    pack.refuse(EMBED)


# ---- Streams


@FORMATS
@pytest.mark.parametrize("shape", SHAPES)
def test_random_bytes(form, shape, tmp_path):
    rng = np.random.default_rng(6)
    pack = Pack(tmp_path, form, shape)
    for part in ("meta", *PARTS[form][3:]):
        old = pack.tensors[f"{EMBED}.{part}"]
        pack.replace(part, rng.bytes(len(old.data)))
        if part in ("idx", "esc"):
            # Any escapes are good, and codes may happen to be.
            pack.write()
            for command in ("verify", "info"):
                for binary in BINARIES:
                    assert run(command, pack.path, "-q", binary=binary).code in (0, 1)
        else:
            pack.refuse(f"tensor {EMBED}")
        pack.tensors[old.name] = old


def bad_metas(form):
    if form == "2":
        return [k | q << 2 for k in range(4) for q in range(64) if q << k > 255]
    fixed, escape = set(range(9)), {16 | b for b in range(1, 5)}
    return [meta for meta in range(256) if meta not in fixed | escape]


@FORMATS
def test_meta_outside_the_format(pack, form):
    good = pack.data("meta")
    for i, meta in enumerate(bad_metas(form)):
        altered = bytearray(good)
        altered[i % len(good)] = meta
        pack.replace("meta", altered)
        pack.write()
        result = run("verify", pack.path)
        assert result.code == 1, (meta, result.err)
        assert f"tensor {EMBED}" in result.err
        assert ".meta" in result.err
    pack.refuse(f"tensor {EMBED}", ".meta")


@pytest.mark.parametrize("form", ["2"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    "alter",
    [
        lambda roff, total: roff + 1,
        lambda roff, total: roff * 0 + 1,
        lambda roff, total: np.append(roff[:-1], total + 1),
        lambda roff, total: np.append(roff[:-1], total),
        lambda roff, total: np.append(roff[:-1], 2**32 - 1),
        lambda roff, total: np.append(roff[:-1], 0),
        lambda roff, total: roff[::-1],
        lambda roff, total: np.append(roff[:1], roff[1:] - 1),
        lambda roff, total: np.append(roff[:1], roff[1:] + 1),
        lambda roff, total: np.where(np.arange(len(roff)) == len(roff) // 2, 2**31, roff),
        lambda roff, total: roff * 2**16 % 2**32,
    ],
)
def test_row_offsets(alter, form, shape, tmp_path):
    pack = Pack(tmp_path, form, shape)
    roff = pack.words("roff")
    altered = alter(roff, len(pack.words("bits")))
    pack.replace("roff", altered)
    if (altered == roff).all():  # the last row has no bits, and so begins where all bits end
        return
    pack.refuse(f"tensor {EMBED}", ".roff" if altered[0] else "row")


@pytest.mark.parametrize("form", ["2"])
@pytest.mark.parametrize("shape", SHAPES)
def test_bits_behind_a_row(form, shape, tmp_path):
    """The bits that fill a row's last word are 0, so that no two packs hold the same weights."""
    pack = Pack(tmp_path, form, shape)
    roff, bits = pack.words("roff"), pack.words("bits")
    ends = np.append(roff[1:], len(bits))
    row = int(np.flatnonzero((ends > roff) & (bits[ends - 1] >> 31 == 0))[-1])
    bits[ends[row] - 1] |= 1 << 31
    pack.replace("bits", bits)
    pack.refuse(f"tensor {EMBED}", f"row {row}", ".bits")


@pytest.mark.parametrize("form", ["1"])
def test_escapes(form, tmp_path):
    pack = Pack(tmp_path, form)
    esc = pack.data("esc")
    assert len(esc) > 10
    for altered in (esc[:-1], esc[:1], b"", esc + b"\0", esc + esc):
        pack.replace("esc", altered)
        pack.refuse(f"tensor {EMBED}", ".esc")


@FORMATS
def test_everything_is_constant(form, tmp_path):
    """All weights alike take no bits at all; then one word too many must be noticed."""
    pack = Pack(tmp_path, form, (4, 333), "constant")
    codes = PARTS[form][3]
    assert pack.data(codes) == b""
    pack.write()
    run_well("verify", pack.path)
    pack.replace(codes, struct.pack("<I", 0))
    pack.refuse(f"tensor {EMBED}")
