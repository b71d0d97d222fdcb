"""Rounds float32 numbers to BF16."""

import numpy as np


def round_to_bf16(values: np.ndarray) -> np.ndarray:
    """Finite float32 to BF16 bit patterns (uint16), to nearest, ties to even."""
    if not np.isfinite(values).all():
        raise SystemExit("the model holds a weight that is not finite")
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
