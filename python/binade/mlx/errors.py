"""What loading a model can raise: the exceptions of binade, ModelError and MemoryError."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from binade import BinadeError, DataError, FileError, UsageError

__all__ = ["BinadeError", "DataError", "FileError", "ModelError", "UsageError", "memory_errors"]


class ModelError(BinadeError, ValueError):
    """mlx-lm has no such architecture, or the checkpoint does not fit it."""


@contextlib.contextmanager
def memory_errors() -> Iterator[None]:
    """MLX's allocators raise RuntimeError, "[malloc] Unable to allocate" and the like."""
    try:
        yield
    except RuntimeError as error:
        if "malloc" not in str(error):
            raise
        raise MemoryError(str(error)) from error
