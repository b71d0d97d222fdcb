"""Devices and versions of this machine, as a person would write them into a bug report."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from typing import Any

import mlx.core as mx

from binade import __version__
from binade.mlx import _ops, trust

_PACKAGES = ["mlx", "mlx-cpu", "mlx-metal", "mlx-lm", "numpy", *trust.LIBRARIES]
_HIDDEN = {"BINADE_CACHE"}  # paths are private


def of_devices() -> dict[str, str]:
    found = {"system": _system(), "CPU": _cpu()}
    if mx.is_available(mx.gpu):
        found["GPU"] = _gpu(dict(mx.device_info(mx.gpu)))
        driver = _nvidia_driver()
        if driver:
            found["driver"] = driver
    return found


def has_cuda() -> bool:
    """Whether MLX's GPU is an NVIDIA one."""
    return mx.is_available(mx.gpu) and "compute_capability_major" in mx.device_info(mx.gpu)


def of_versions(command: str | None) -> dict[str, str]:
    proven = "" if _ops.mlx_is_proven() else "NOT "
    found = {
        "binade": __version__,
        **({"command": command} if command else {}),
        "Python": platform.python_version(),
        "MLX": f"{mx.__version__}, {proven}the one that products are proven to equal",
        "packages": ", ".join(f"{n} {v}" for n in _PACKAGES if (v := trust.version_of(n))),
    }
    loaded = _loaded_libraries()
    if loaded:
        found["loaded"] = ", ".join(loaded)
    settings = _settings()
    if settings:
        found["settings"] = ", ".join(settings)
    return found


def _system() -> str:
    name = f"{platform.system()} {platform.release()} {platform.machine()}"
    try:
        return f"{platform.freedesktop_os_release()['PRETTY_NAME']}, {name}"
    except (OSError, KeyError):
        return name


def _cpu() -> str:
    name = mx.device_info(mx.cpu).get("device_name", "unknown")
    ncpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    threads = os.environ.get("BINADE_NUM_THREADS", ncpus)
    return f"{name}, {ncpus} CPUs, {trust.cpu_kernels()} kernels, {threads} threads, {_memory()}"


def _memory() -> str:
    try:
        return _gib(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (OSError, ValueError):
        return "memory unknown"


def _gpu(info: dict[str, Any]) -> str:
    parts = [str(info.get("device_name", "unknown")), str(info.get("architecture", ""))]
    if "compute_capability_major" in info:
        minor = info.get("compute_capability_minor")
        parts.append(f"compute capability {info['compute_capability_major']}.{minor}")
    total = info.get("total_memory", info.get("memory_size"))
    if total:
        free = f" ({_gib(info['free_memory'])} free)" if "free_memory" in info else ""
        parts.append(_gib(total) + free)
    return ", ".join(part for part in parts if part)


def _gib(nbytes: int) -> str:
    return f"{nbytes / 2**30:.1f} GiB"


def _nvidia_driver() -> str | None:
    try:
        text = Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        return None
    found = re.search(r"\b\d+\.\d+(\.\d+)?\b", text)
    return f"NVIDIA {found[0]}" if found else None


def _loaded_libraries() -> list[str]:
    """The names, without their folders, of what decides bits and builds kernels on NVIDIA GPUs."""
    try:
        text = Path("/proc/self/maps").read_text()
    except OSError:
        return []
    return sorted(set(re.findall(r"/(lib(?:nvrtc|cublas|cublasLt|cudart)\.so[.\d]*)$", text, re.M)))


def _settings() -> list[str]:
    """What is set in the environment and changes how MLX or Binade work."""
    return [
        f"{name}={value}"
        for name, value in sorted(os.environ.items())
        if re.match("(BINADE|MLX)_", name) and name not in _HIDDEN and "/" not in value
    ]
