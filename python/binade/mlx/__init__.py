"""Packed models in MLX and mlx-lm, bit for bit as their BF16 originals.

from binade.mlx.r4 import load
model, tokenizer, dropped = load("packed")
"""

from __future__ import annotations

import importlib.metadata
import os
import warnings

_BACKENDS = "pip install 'binade[cpu]', on NVIDIA GPUs 'binade[cuda]' or 'binade[cuda13]'"


def _mlx_version() -> str:
    try:
        import mlx.core as mx
    except ImportError as error:
        # On Linux MLX is a shell; its backends are packages of their own.
        raise ImportError(f"binade.mlx needs MLX with a backend: {_BACKENDS} ({error})") from error
    return mx.__version__


_VERSION = _mlx_version()
try:
    from binade.mlx import _ops
except ImportError as error:
    raise ImportError(
        f"binade was installed without its MLX operations, or they do not fit MLX {_VERSION}: "
        f"{error}"
    ) from error
try:
    importlib.metadata.version("mlx-lm")
except importlib.metadata.PackageNotFoundError as error:
    raise ImportError(f"binade.mlx needs mlx-lm: {_BACKENDS}") from error

if not _ops.mlx_is_proven():
    warnings.warn(
        f"MLX {_VERSION} is not the version that packed products are proven to equal bit for bit: "
        "every product rebuilds its weight in BF16, which is exact but slow.",
        stacklevel=2,
    )

if os.environ.get("BINADE_GEMM_ROW"):
    warnings.warn(
        "BINADE_GEMM_ROW is set, which is for checks: on an NVIDIA GPU products of several rows "
        "may then differ from those of BF16.",
        stacklevel=2,
    )

from binade.mlx import trust  # noqa: E402

trust.apply()
