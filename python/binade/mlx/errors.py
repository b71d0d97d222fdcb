"""What loading a model can raise: the exceptions of binade, ModelError and MemoryError."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from binade import BinadeError, DataError, FileError, UsageError

__all__ = ["BinadeError", "DataError", "FileError", "ModelError", "UsageError", "memory_errors"]


class ModelError(BinadeError, ValueError):
    """mlx-lm has no such architecture, or the checkpoint does not fit it."""


@contextlib.contextmanager
def memory_errors(what: str) -> Iterator[None]:
    """Names what there is no memory for. MLX raises RuntimeError, "[malloc] Unable to allocate"."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "malloc" not in str(error):
            raise
        raise MemoryError(f"{what}: out of memory") from error
