"""Which kernels failed a self-check on this machine, kept in the user's cache for later runs.

`python -m binade.mlx.doctor` writes the file, `import binade.mlx` reads it: what such a kernel
would serve is rebuilt, which is exact and slow. Nothing in the file can do more than that.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import itertools
import json
import os
import stat
import sys
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx

from binade import __version__
from binade._library import library
from binade.mlx import _ops

Failures = dict[str, str]  # kernel: what was found
_Entry = dict[str, Any]  # {"machine": {...}, "kernels": Failures}

_FORMAT = 1
_NBYTES_MAX = 1 << 16
_ENTRIES_MAX = 20  # of a few kernels, so that they stay below that
_UNREADABLE = (OSError, ValueError, RecursionError)
# What decides the bits of products on NVIDIA GPUs beside MLX itself.
LIBRARIES = [
    *("mlx-cuda-12", "mlx-cuda-13", "nvidia-cublas-cu12", "nvidia-cublas"),
    *("nvidia-cuda-nvrtc-cu12", "nvidia-cuda-nvrtc"),
]


def apply() -> None:
    """Distrusts the kernels that failed on this machine. Called when binade.mlx is imported."""
    if ("-m", "binade.mlx.doctor") in itertools.pairwise(sys.orig_argv):
        return  # which checks them again
    path = cache_path()
    if path is None:
        return
    try:
        entries = _read(path)
    except FileNotFoundError:
        return
    except _UNREADABLE as error:
        reason = error.strerror if isinstance(error, OSError) else error
        warnings.warn(
            f"{path} cannot be read ({reason}), so no kernel is distrusted: "
            "`binade doctor` checks them and writes it anew.",
            stacklevel=3,
        )
        return
    if not entries:
        return
    here = [machine(device) for device in devices()]
    names = sorted({name for e in entries if e["machine"] in here for name in e["kernels"]})
    for name in names:
        _ops.distrust(name)
    if names:
        warnings.warn(
            f"kernels that failed their check on this machine are not used ({', '.join(names)}): "
            "MLX's own operations take their place, which is exact but slower; "
            "`binade doctor` checks again.",
            stacklevel=3,
        )


def recorded(device: mx.DeviceType) -> Failures:
    """What is kept about this device; nothing if the file cannot be read."""
    here = machine(device)
    return {n: t for e in _read_if_sound() if e["machine"] == here for n, t in e["kernels"].items()}


def record(device: mx.DeviceType, failed: Failures, passed: set[str]) -> None:
    """Keeps the kernels that failed on this device, forgets those that passed. Raises OSError."""
    path = cache_path()
    if path is None:
        raise OSError("there is no home directory to keep it in")
    here = machine(device)
    old = recorded(device)
    kernels = {name: text for name, text in old.items() if name not in passed} | failed
    others = [e for e in _read_if_sound() if e["machine"] != here]
    if kernels or others:
        new = [{"machine": here, "kernels": kernels}] if kernels else []
        _write(path, {"format": _FORMAT, "entries": [*others, *new][-_ENTRIES_MAX:]})
    else:
        path.unlink(missing_ok=True)


def cache_path() -> Path | None:
    """BINADE_CACHE, else binade in the user's cache; None if there is no home directory."""
    folder = os.environ.get("BINADE_CACHE")
    if not folder:
        base = os.environ.get("XDG_CACHE_HOME", "")
        if not os.path.isabs(base):  # as its specification says
            base = os.path.expanduser("~/.cache")
        if not os.path.isabs(base):
            return None
        folder = os.path.join(base, "binade")
    return Path(folder, "distrusted.json")


def devices() -> list[mx.DeviceType]:
    return [mx.cpu, *([mx.gpu] if mx.is_available(mx.gpu) else [])]


def cpu_kernels() -> str:
    """The kernel set in use on the CPU."""
    library.binade_cpu.restype = ctypes.c_char_p
    return library.binade_cpu().decode()


def machine(device: mx.DeviceType) -> dict[str, str]:
    """What the bits of products may depend on."""
    info: Mapping[str, Any] = mx.device_info(device)
    found = {
        "device": device.name,
        "name": str(info.get("device_name", "unknown")),
        "architecture": str(info.get("architecture", "unknown")),
        "binade": __version__,
        "mlx": mx.__version__,
    }
    if device == mx.cpu:
        return found | {"kernels": cpu_kernels()}
    return found | {name: v for name in LIBRARIES if (v := version_of(name))}


def version_of(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _read(path: Path) -> list[_Entry]:
    """The entries, all checked: somebody else may have written the file. Raises OSError and
    ValueError."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would never end
    with open(fd, "rb") as f:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ValueError("it is no regular file")
        data = f.read(_NBYTES_MAX + 1)
    if len(data) > _NBYTES_MAX:
        raise ValueError(f"it has more than {_NBYTES_MAX} bytes")
    try:
        content = json.loads(data)
    except UnicodeDecodeError as error:
        raise ValueError("it is not UTF-8") from error
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise ValueError(f"it is not of format {_FORMAT}")
    entries = content.get("entries")
    if not isinstance(entries, list) or not all(_is_entry(e) for e in entries):
        raise ValueError("its entries are not what the doctor writes")
    return entries


def _read_if_sound() -> list[_Entry]:
    path = cache_path()
    try:
        return _read(path) if path else []
    except _UNREADABLE:
        return []


def _is_entry(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() == {"machine", "kernels"}
        and all(_is_text_map(part) for part in value.values())
    )


def _is_text_map(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(text, str) and text.isprintable() for pair in value.items() for text in pair
    )


def _write(path: Path, content: dict[str, Any]) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fd, name = tempfile.mkstemp(prefix=".distrusted-", dir=path.parent)
    try:
        with open(fd, "w") as f:
            json.dump(content, f, indent=1)
            f.flush()
            os.fsync(fd)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
