"""Writes the seeds of fuzz_format1, fuzz_format2, fuzz_round_trip, fuzz_packed_dir, fuzz_model_dir
from small weights and packs: make_seeds.py BINADE LIBBINADE. Run by hand, when a format or an input
changes.
"""

import ctypes
import json
import random
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

SEEDS = Path(__file__).parent / "seeds"
TILE = 128
TWO_THREADS, VERBATIM, FORMAT_1 = 1, 2, 64
NAMES = [
    "model.safetensors",
    "model-00001-of-00002.safetensors",
    "model-00002-of-00002.safetensors",
    "model.safetensors.index.json",
    "binade_pack.json",
    "config.json",
    "sub/notes.txt",
]


def make_bf16(count, seed, scale=0.02):
    rng = random.Random(seed)
    return b"".join(struct.pack("<f", rng.gauss(0, scale))[2:] for _ in range(count))


def write_seed(target, name, data):
    assert len(data) < 4096, (target, name, len(data))
    (SEEDS / target).mkdir(parents=True, exist_ok=True)
    (SEEDS / target / name).write_bytes(data)


# ---- Parts


PARTS = ("raw", "table", "meta", "codes", "tail")


class Parts(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in PARTS),
        *((f"{name}_nbytes", ctypes.c_size_t) for name in PARTS),
    )


def encode(library, fmt, bf16, rows, cols):
    """(meta, codes, tail)"""
    parts = Parts()
    size = ctypes.c_uint64
    assert library.binade_encode_bound(fmt, size(rows), size(cols), ctypes.byref(parts), None) == 0
    buffers = {}
    for name in PARTS:
        buffers[name] = ctypes.create_string_buffer(getattr(parts, f"{name}_nbytes"))
        setattr(parts, name, ctypes.addressof(buffers[name]))
    status = library.binade_encode(
        fmt, bf16, size(rows), size(cols), ctypes.byref(parts), ctypes.c_uint(1), None
    )
    assert status == 0
    return [buffers[n].raw[: getattr(parts, f"{n}_nbytes")] for n in ("meta", "codes", "tail")]


def make_parts_seed(flags, rows, cols, meta, codes, tail):
    """rows and cols as in the input: parts.c stretches them."""
    return struct.pack("<BHHBHH", flags, rows, cols, 0, len(meta), len(tail)) + meta + tail + codes


def make_parts_seeds(library, fmt):
    target = f"format{fmt}"
    rng = random.Random(fmt)
    weights = {
        "one": (1, 1, make_bf16(1, 1)),
        "tile": (1, 128, make_bf16(128, 2)),
        "rows": (5, 300, make_bf16(1500, 3)),
        "wide": (3, 257, bytes(rng.randrange(256) for _ in range(2 * 771))),
        "constant": (4, 200, b"\x9a\x3c" * 800),
        "outliers": (2, 400, make_bf16(398, 4) + b"\x80\x7f\x01\x00" + make_bf16(400, 5)),
    }
    for name, (rows, cols, bf16) in weights.items():
        meta, codes, tail = encode(library, fmt, bf16, rows, cols)
        seed = make_parts_seed(VERBATIM, rows - 1, cols - 1, meta, codes, tail)
        write_seed(target, f"verbatim_{name}", seed)
    # Meta bytes that a pattern of streams is made for; each kind of shape, whole and damaged.
    metas = {1: bytes([3, 19, 17, 8, 0, 4, 20, 1]), 2: bytes([0x0C, 0x15, 0x1E, 0x0F, 0x20, 0])}
    pattern = bytes(rng.randrange(256) for _ in range(61))
    thin = bytes(rng.randrange(256) & rng.randrange(256) for _ in range(61))
    for kind, (rows, cols) in enumerate([(7, 700), (8, 200), (999, 3), (496, 100)]):
        flags = kind << 3 | TWO_THREADS
        write_seed(
            target, f"made_{kind}", make_parts_seed(flags, rows, cols, metas[fmt], thin, b"")
        )
        changes = bytes([3, 0, 0x80, 4, 2, 0, 0xC0, 1])
        damaged = make_parts_seed(flags, rows, cols, metas[fmt], pattern, changes)
        write_seed(target, f"damaged_{kind}", damaged)


def make_round_trip_seeds():
    rng = random.Random(3)
    weights = {
        "normal": make_bf16(1000, 6),
        "bits": bytes(rng.randrange(256) for _ in range(1999)),
        "constant": b"\x9a\x3c",
        "special": struct.pack("<8H", 0, 0x8000, 1, 0x7F80, 0xFF80, 0x7FC0, 0x3F80, 0xBF80),
    }
    for kind, (rows, cols) in enumerate([(9, 900), (8, 199), (998, 2), (496, 99)]):
        for name, bf16 in weights.items():
            flags = kind << 3 | (FORMAT_1 if kind % 2 == len(name) % 2 else 0)
            head = struct.pack("<BHHB", flags, rows, cols, 3 if name == "normal" else 0)
            write_seed("round_trip", f"{name}_{kind}", head + bf16)


# ---- Packed directories


def write_shard(path, tensors, metadata=None, gap=b""):
    header, parts, offset = {}, [], 0
    if metadata:
        header["__metadata__"] = metadata
    for name, (dtype, shape, data) in tensors.items():
        offset += len(gap)
        offsets = [offset, offset + len(data)]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        offset += len(data)
        parts += [gap, data]
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))


def make_model(path, name):
    q = ("BF16", [6, 20], make_bf16(120, 7))
    long = ("BF16", [2, 130], make_bf16(260, 8, 1e3))
    norm = ("F32", [3], bytes(range(12)))
    if name == "one":
        write_shard(path / NAMES[0], {"lm_head.weight": q}, {"format": "pt"})
    elif name == "carried":
        tensors = {"embed_tokens.weight": q, "norm": norm, "n": ("I64", [], bytes(8))}
        write_shard(path / NAMES[0], {**tensors, "e": ("U8", [0, 2], b"")}, gap=b"gap")
        (path / "config.json").write_text("{}\n")
    else:
        write_shard(path / NAMES[1], {"lm_head.weight": long}, gap=bytes(5))
        write_shard(path / NAMES[2], {"norm": norm})
        shards = {"lm_head.weight": NAMES[1], "norm": NAMES[2]}
        (path / NAMES[3]).write_text(json.dumps({"metadata": {}, "weight_map": shards}))
        (path / "sub").mkdir()
        (path / "sub/notes.txt").write_text("notes")


def make_piece(path, name):
    data, spaces, second = (path / name).read_bytes(), 0, b""
    if name.endswith(".safetensors"):
        (length,) = struct.unpack("<Q", data[:8])
        first, second = data[8 : 8 + length].rstrip(b" "), data[8 + length :]
        spaces = length - len(first)
    elif name == "binade_pack.json":
        # Only what readers look at, in few bytes.
        manifest = json.loads(data)
        kept = {key: manifest[key] for key in ("binade", "records") if key in manifest}
        first = json.dumps(kept, separators=(",", ":")).encode()
        first = first[:-1] + b",\n" if "records" in kept else first
    else:
        first = data
    # A manifest without records has no seal.
    head = NAMES.index(name) | (8 if name == "binade_pack.json" and first[-1:] == b"}" else 0)
    return struct.pack("<BHHH", head, len(first), len(second), spaces) + first + second


def join_pieces(path):
    return b"".join(make_piece(path, name) for name in NAMES if (path / name).exists())


def make_model_dir_seeds():
    for name in ("one", "carried", "two"):
        with tempfile.TemporaryDirectory() as work:
            make_model(Path(work), name)
            write_seed("model_dir", name, join_pieces(Path(work)))


def make_packed_dir_seeds(binade):
    for name in ("one", "carried", "two"):
        for fmt in ("1", "2"):
            for extra in ([], ["--no-hash"]):
                with tempfile.TemporaryDirectory() as work:
                    model, packed = Path(work) / "model", Path(work) / "packed"
                    model.mkdir()
                    make_model(model, name)
                    command = [binade, "pack", "-q", model, "--out", packed, "--format", fmt]
                    subprocess.run([*command, *extra], check=True)
                    seed = join_pieces(packed)
                kind = "bare" if extra else "recorded"
                write_seed("packed_dir", f"{name}_{fmt}_{kind}", seed)


def main():
    binade, library = sys.argv[1], ctypes.CDLL(sys.argv[2])
    for fmt in (1, 2):
        make_parts_seeds(library, fmt)
    make_round_trip_seeds()
    make_model_dir_seeds()
    make_packed_dir_seeds(binade)


if __name__ == "__main__":
    main()
