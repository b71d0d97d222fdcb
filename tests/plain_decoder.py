"""A slow decoder of Binade checkpoints, written from docs/FORMAT.md alone.

Only Python's standard library, none of the project's code. Every check that it makes is one that
the page asks of a reader; it leaves out what only a hostile file would need.
"""

import base64
import json
import struct
from pathlib import Path

TILE = 128
DTYPE_NBITS = {"BF16": 16, "F16": 16, "U16": 16, "I16": 16, "U8": 8, "I8": 8, "BOOL": 8}
DTYPE_NBITS |= {"F32": 32, "U32": 32, "I32": 32, "F64": 64, "U64": 64, "I64": 64}


class BadPackError(Exception):
    """The pack is not what the page says."""


def require(condition: bool, what: str) -> None:
    if not condition:
        raise BadPackError(what)


class Bits:
    """A stream of bits that fill little-endian words from bit 0 up."""

    def __init__(self, data: bytes):
        self.data, self.nbits, self.at = data, 8 * len(data), 0

    def take(self, nbits: int) -> int:
        require(self.at + nbits <= self.nbits, "the codes end too early")
        first, self.at = self.at, self.at + nbits
        around = int.from_bytes(self.data[first // 8 : self.at // 8 + 1], "little")
        return around >> first % 8 & (1 << nbits) - 1


# ---- The two formats ---------------------------------------------------------------------------


def decode_fixed_tile(meta: int, idx: Bits, esc: Bits, table: bytes) -> list[int]:
    """Exponents of 128 weights."""
    width, escapes = meta & 15, bool(meta & 16)
    require(meta < 32 and (1 <= width <= 4 if escapes else width <= 8), "a bad meta")
    exponents = []
    for _ in range(TILE):
        code = idx.take(width)
        if escapes and code == 2**width - 1:
            exponents.append(esc.take(8))
        else:
            exponents.append(table[code])
    return exponents


def decode_fixed(parts: dict, nrows: int, ncols: int) -> list[int]:
    ntiles = -(-ncols // TILE)
    idx, esc, exponents = Bits(parts["idx"]), Bits(parts["esc"]), []
    for row in range(nrows):
        of_row = []
        for meta in parts["meta"][row * ntiles : (row + 1) * ntiles]:
            of_row += decode_fixed_tile(meta, idx, esc, parts["table"])
        exponents += of_row[:ncols]
    require(idx.at == idx.nbits and esc.at == esc.nbits, "codes behind the last weight")
    return exponents


def decode_rice_tile(meta: int, nweights: int, bits: Bits) -> list[int]:
    k, qmax = meta & 3, meta >> 2
    require(qmax << k <= 255, "a bad meta")
    ranks = [bits.take(k) for _ in range(nweights)]
    standing = list(range(nweights))
    for _ in range(qmax):
        standing = [i for i in standing if bits.take(1)]
        for i in standing:
            ranks[i] += 1 << k
    return ranks


def decode_rice(parts: dict, nrows: int, ncols: int) -> list[int]:
    ntiles = -(-ncols // TILE)
    starts = list(struct.unpack(f"<{nrows}I", parts["roff"]))
    starts.append(len(parts["bits"]) // 4)
    require(starts[0] == 0 and starts == sorted(starts), "roff is not ascending from 0")
    exponents = []
    for row in range(nrows):
        bits = Bits(parts["bits"][4 * starts[row] : 4 * starts[row + 1]])
        for tile in range(ntiles):
            nweights = min(TILE, ncols - tile * TILE)
            meta = parts["meta"][row * ntiles + tile]
            exponents += [parts["table"][r] for r in decode_rice_tile(meta, nweights, bits)]
        left = bits.nbits - bits.at
        require(left < 32 and bits.take(left) == 0, "a row does not end in its last word")
    return exponents


def decode(version: int, parts: dict, nrows: int, ncols: int) -> bytes:
    """BF16, little-endian, from the parts {"raw": bytes, "table": bytes, ...}."""
    nmeta = nrows * -(-ncols // TILE)
    require(len(parts["raw"]) == nrows * ncols, "the size of raw")
    require(len(parts["table"]) == 256 and len(parts["meta"]) == nmeta, "the size of table or meta")
    exponents = (decode_fixed if version == 1 else decode_rice)(parts, nrows, ncols)
    pairs = zip(parts["raw"], exponents, strict=True)
    weights = [(s & 128) << 8 | e << 7 | s & 127 for s, e in pairs]
    return struct.pack(f"<{len(weights)}H", *weights)


# ---- Files -------------------------------------------------------------------------------------


def parse_shard(data: bytes) -> tuple[dict, dict]:
    """{name: (dtype, shape, bytes)} in file order, and __metadata__."""
    (length,) = struct.unpack_from("<Q", data)
    require(8 + length <= len(data), "the header is longer than the file")
    header = json.loads(data[8 : 8 + length])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, t in sorted(header.items(), key=lambda item: item[1]["data_offsets"][0]):
        begin, end = t["data_offsets"]
        require(begin <= end <= len(data) - 8 - length, f"{name} leaves the file")
        nbits = DTYPE_NBITS.get(t["dtype"], 0)
        for dim in t["shape"]:
            nbits *= dim
        require(t["dtype"] not in DTYPE_NBITS or nbits == 8 * (end - begin), f"{name}: its size")
        tensors[name] = (t["dtype"], t["shape"], data[8 + length + begin : 8 + length + end])
    return tensors, metadata


def decode_shard(data: bytes) -> dict:
    """The original tensors of a packed shard: {name: (dtype, shape, bytes)}."""
    tensors, metadata = parse_shard(data)
    version = int(metadata["binade_version"])
    require(metadata["format"] == "binade" and version in (1, 2), "not a shard of format 1 or 2")
    require(metadata["binade_tile"] == str(TILE), "another tile")
    suffixes = ["raw", "table", "meta", *(["idx", "esc"] if version == 1 else ["bits", "roff"])]
    originals = {}
    for name, shape in json.loads(metadata["binade_tensors"]).items():
        parts = {}
        for suffix in suffixes:
            require(f"{name}.{suffix}" in tensors, f"{name}: no part {suffix}")
            dtype, part_shape, parts[suffix] = tensors.pop(f"{name}.{suffix}")
            wide = suffix in ("idx", "bits", "roff")
            require(dtype == ("U32" if wide else "U8"), f"{name}: the dtype of {suffix}")
            require(suffix != "raw" or part_shape == shape, f"{name}: the shape of raw")
        nrows = 1
        for dim in shape[:-1]:
            nrows *= dim
        originals[name] = ("BF16", shape, decode(version, parts, nrows, shape[-1]))
    return originals | tensors


def restore_file(pack: Path, record: dict) -> bytes:
    """One file of the original, from its element of records.files in binade_pack.json."""
    if "xxh3" in record:
        return (pack / record["path"]).read_bytes()
    if "text" in record:
        return record["text"].encode()
    header = record["header"].encode()
    file = bytearray(record["size"])
    file[: 8 + len(header)] = struct.pack("<Q", len(header)) + header
    tensors = decode_shard((pack / record["shard"]).read_bytes())
    for name, t in json.loads(header).items():
        if name == "__metadata__":
            continue
        dtype, shape, data = tensors.pop(name)
        require((dtype, shape) == (t["dtype"], t["shape"]), f"{name}: not as in the header")
        begin, end = (8 + len(header) + offset for offset in t["data_offsets"])
        require(end - begin == len(data) and end <= len(file), f"{name}: its place")
        file[begin:end] = data
    require(not tensors, "a tensor that the original does not have")
    for offset, nbytes, content in record["gaps"]:
        gap = bytes(nbytes) if content is None else base64.b64decode(content, validate=True)
        require(len(gap) == nbytes and offset + nbytes <= len(file), "a gap's place")
        file[offset : offset + nbytes] = gap
    return bytes(file)
