"""Writes a BF16 safetensors file laid out as the safetensors library lays it out."""

import json
import struct
from pathlib import Path

import numpy as np


def write_safetensors(path: Path, tensors: dict[str, np.ndarray], metadata: dict) -> None:
    """tensors: BF16 bit patterns (uint16) by name. Sorted by name, header padded to 8 bytes."""
    header, offset = {"__metadata__": metadata}, 0
    for name in sorted(tensors):
        end = offset + tensors[name].nbytes
        shape = list(tensors[name].shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in sorted(tensors):
            file.write(tensors[name].astype("<u2").tobytes())
