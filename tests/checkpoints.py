"""Checkpoints for tests: safetensors files written byte by byte, so that headers may have any order
and spacing and files may have gaps; and BF16 data of many kinds. Needs numpy.
"""

import json
import struct
from dataclasses import dataclass

import numpy as np

INDEX = "model.safetensors.index.json"
SHARD = "model.safetensors"
# Bits of one element.
DTYPES = {
    "BOOL": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "U8": 8,
    "I8": 8,
    "F8_E4M3": 8,
    "F8_E5M2": 8,
    "F8_E8M0": 8,
    "U16": 16,
    "I16": 16,
    "F16": 16,
    "BF16": 16,
    "U32": 32,
    "I32": 32,
    "F32": 32,
    "C64": 64,
    "U64": 64,
    "I64": 64,
    "F64": 64,
}


@dataclass(frozen=True)
class Tensor:
    name: str
    dtype: str
    shape: tuple
    data: bytes


def make_tensor(name, dtype, shape, rng):
    """A tensor of random bytes; BOOL holds 0 and 1."""
    nbytes = int(np.prod(shape, dtype=np.int64)) * DTYPES[dtype] // 8
    data = rng.bytes(nbytes)
    if dtype == "BOOL":
        data = bytes(byte & 1 for byte in data)
    return Tensor(name, dtype, tuple(shape), data)


def make_weight(name, shape, rng, kind="normal"):
    data = make_bf16(rng, int(np.prod(shape, dtype=np.int64)), kind)
    return Tensor(name, "BF16", tuple(shape), data)


# ---- BF16 data

BF16_KINDS = ["normal", "rows", "wide", "bits", "constant", "zero", "two", "special", "geometric"]


def make_bf16(rng, count, kind="normal"):
    """`count` weights as little-endian bytes."""
    return KINDS[kind](rng, count).astype("<u2").tobytes()


def round_bf16(floats):
    """To the nearest BF16, ties to even; the floats must be finite."""
    bits = np.ascontiguousarray(floats, np.float32).view(np.uint32)
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def every_bf16():
    """All 65,536 patterns in order."""
    return np.arange(1 << 16, dtype="<u2").tobytes()


def with_exponents(rng, exponents):
    signs_mantissas = rng.integers(0, 256, len(exponents), dtype=np.uint32)
    return (signs_mantissas & 0x80) << 8 | exponents.astype(np.uint32) << 7 | signs_mantissas & 0x7F


def make_special(rng, count):
    """Mostly normal weights, among them zeros, subnormals, infinities, NaNs."""
    special = [0, 0x8000, 1, 0x8001, 0x7F, 0x807F, 0x80, 0x7F80, 0xFF80, 0x7F81, 0x7FC0, 0xFFFF]
    bits = KINDS["normal"](rng, count)
    where = rng.random(count) < 0.1
    bits[where] = rng.choice(special, int(where.sum()))
    return bits


KINDS = {
    "normal": lambda rng, n: round_bf16(rng.normal(0, 0.02, n)),
    "rows": lambda rng, n: round_bf16(
        rng.normal(0, 1, n) * 2.0 ** np.repeat(rng.integers(-40, 40, n // 200 + 1), 200)[:n]
    ),
    "wide": lambda rng, n: round_bf16(rng.normal(0, 1, n) * np.exp(rng.normal(0, 8, n))),
    "bits": lambda rng, n: rng.integers(0, 1 << 16, n, dtype=np.uint32),
    "constant": lambda rng, n: np.full(n, 0x3C9A, np.uint32),
    "zero": lambda rng, n: np.zeros(n, np.uint32),
    "two": lambda rng, n: rng.choice(np.array([0x3F80, 0xBE00], np.uint32), n),
    "special": make_special,
    "geometric": lambda rng, n: with_exponents(rng, 127 - np.minimum(rng.geometric(0.3, n), 120)),
}


# ---- Files


def dump_entry(tensor, offsets, keys):
    values = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": list(offsets)}
    return {key: values[key] for key in keys}


def dump_header(members, spacing, ensure_ascii):
    separators = {"compact": (",", ":"), "spaced": (", ", ": "), "odd": (" ,\n\t", "\r: ")}
    text = json.dumps(members, separators=separators[spacing], ensure_ascii=ensure_ascii)
    return (f" {text} \n" if spacing == "odd" else text).encode()


def write_safetensors(
    path,
    tensors,
    *,
    metadata=None,
    metadata_at=0,
    spacing="compact",
    ensure_ascii=False,
    keys=("dtype", "shape", "data_offsets"),
    data_order=None,
    gaps=None,
    trailing=b"",
    padding=0,
):
    """Writes a file whose header names `tensors` in the order given.

    metadata      a dictionary, "null": null, or None: no __metadata__
    metadata_at   how many tensors stand before __metadata__ in the header
    spacing       of the header: "compact", "spaced" or "odd"
    data_order    the positions in `tensors` in the order of the data; None: as given
    gaps          {k: bytes that belong to no tensor, in front of the k-th tensor's data}
    trailing      bytes behind the last tensor
    padding       spaces that end the header
    """
    offsets, parts, position = {}, [], 0
    for k, i in enumerate(range(len(tensors)) if data_order is None else data_order):
        for part in ((gaps or {}).get(k, b""), tensors[i].data):
            begin, position = position, position + len(part)
            parts.append(part)
        offsets[i] = (begin, position)
    assert len(offsets) == len(tensors)
    members = {}
    value = None if metadata == "null" else metadata
    for i, tensor in enumerate(tensors):
        if metadata is not None and i == metadata_at:
            members["__metadata__"] = value
        members[tensor.name] = dump_entry(tensor, offsets[i], keys)
    if metadata is not None:
        members.setdefault("__metadata__", value)
    header = dump_header(members, spacing, ensure_ascii) + b" " * padding
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(header)) + header)
        f.writelines(parts)
        f.write(trailing)


def read_header(path):
    """The header's members and where the data begins."""
    with open(path, "rb") as f:
        (length,) = struct.unpack("<Q", f.read(8))
        return json.loads(f.read(length)), 8 + length


def read_safetensors(path):
    """{name: Tensor} in header order."""
    header, start = read_header(path)
    header.pop("__metadata__", None)
    data = path.read_bytes()
    result = {}
    for name, entry in header.items():
        begin, end = (start + offset for offset in entry["data_offsets"])
        result[name] = Tensor(name, entry["dtype"], tuple(entry["shape"]), data[begin:end])
    return result


def list_shards(directory):
    """As a loader finds them: what the index names, or every top-level *.safetensors."""
    index = directory / INDEX
    if index.exists():
        return sorted(set(json.loads(index.read_text())["weight_map"].values()))
    return sorted(path.name for path in directory.glob("*.safetensors"))


def read_tensors(directory):
    """{name: Tensor} of a whole checkpoint."""
    tensors = {}
    for shard in list_shards(directory):
        tensors.update(read_safetensors(directory / shard))
    return tensors


def write_index(directory, shards, indent=2):
    """shards: {file name: tensors}."""
    weight_map = {t.name: shard for shard, tensors in shards.items() for t in tensors}
    total = sum(len(t.data) for tensors in shards.values() for t in tensors)
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (directory / INDEX).write_text(json.dumps(index, indent=indent))


def read_tree(directory):
    """{relative path: bytes} of every file, links followed."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }
