"""When each kernel of this process ran on an NVIDIA GPU, by the GPU's own clock: kernel_times.c.

In the environment, BINADE_KERNEL_TIMES names the built library where it is not
build/kernel_times.so, BINADE_CUPTI NVIDIA's libcupti where no package nvidia-cuda-cupti lies on
Python's path.
"""

import ctypes
import os
import statistics
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

BUILT = Path(__file__).parent.parent / "build" / "kernel_times.so"
# Below a folder of packages: CUDA 13's, CUDA 12's.
CUPTI_PLACES = ("nvidia/cu13/lib/libcupti.so.13", "nvidia/cuda_cupti/lib/libcupti.so.12")
MESSAGE_NBYTES = 512
# MLX's own, which say that something has ended and belong to no operation.
SIGNALS = ("event_signal_kernel", "event_wait_kernel")


class KernelTimesError(Exception):
    """One sentence."""


class Kernel(NamedTuple):
    name: str  # as the compiler wrote it
    start: int  # nanoseconds
    end: int


class _KernelTime(ctypes.Structure):
    _fields_ = (("start", ctypes.c_uint64), ("end", ctypes.c_uint64), ("name", ctypes.c_char_p))


def find_cupti(folders: Iterable[str] | None = None) -> str:
    """Its path, or its name for the loader where no package has it."""
    if named := os.environ.get("BINADE_CUPTI"):
        return named
    folders = [Path(folder) for folder in (sys.path if folders is None else folders)]
    for place in CUPTI_PLACES:
        for folder in folders:
            if (folder / place).exists():
                return str(folder / place)
    return Path(CUPTI_PLACES[0]).name


class Recorder:
    """Records kernels of this process between start() and stop(); one at a time."""

    def __init__(self, library: str | Path | None = None, cupti: str | Path | None = None):
        path = str(library or os.environ.get("BINADE_KERNEL_TIMES") or BUILT)
        try:
            self._library = ctypes.CDLL(path)
        except OSError as error:
            raise KernelTimesError(
                f"bench/kernel_times.c is not built, or BINADE_KERNEL_TIMES is wrong: {error}"
            ) from None
        self._cupti = str(cupti or find_cupti())

    def start(self) -> None:
        self._call("start", os.fsencode(self._cupti))

    def take(self) -> list[Kernel]:
        """What ran since the start or the last take, in its order. The GPU must be idle."""
        times, count = ctypes.POINTER(_KernelTime)(), ctypes.c_size_t()
        self._call("take", ctypes.byref(times), ctypes.byref(count))
        return [
            Kernel(time.name.decode(errors="replace"), time.start, time.end)
            for time in times[: count.value]
        ]

    def stop(self) -> None:
        self._call("stop")

    def _call(self, name: str, *arguments) -> None:
        message = ctypes.create_string_buffer(MESSAGE_NBYTES)
        if getattr(self._library, f"kernel_times_{name}")(*arguments, message) != 0:
            raise KernelTimesError(message.value.decode(errors="replace"))


# ---- Kernels and operations


class Operations(NamedTuple):
    seconds: list[float]  # of each: its kernels, without the time between them
    names: list[str]  # of the kernels of the first
    is_even: bool  # else kernels could not be told apart, and each one has the mean


def group_by_operation(kernels: list[Kernel], count: int) -> Operations:
    """`count` operations of one kind ran one after another: each launched the same kernels."""
    own = [kernel for kernel in kernels if not any(word in kernel.name for word in SIGNALS)]
    if not own:
        raise KernelTimesError(f"CUPTI has recorded no kernel of {count} operations")
    size = len(own) // count
    groups = [own[size * i : size * (i + 1)] for i in range(count)]
    names = [[kernel.name for kernel in group] for group in groups]
    if size * count != len(own) or any(others != names[0] for others in names):
        mean = 1e-9 * sum(kernel.end - kernel.start for kernel in own) / count
        return Operations([mean] * count, sorted({kernel.name for kernel in own}), False)
    seconds = [1e-9 * sum(kernel.end - kernel.start for kernel in group) for group in groups]
    return Operations(seconds, names[0], True)


def median_operation(kernels: list[Kernel], count: int) -> tuple[float, list[str], bool]:
    """Seconds of the median one, the names of its kernels, and is_even."""
    operations = group_by_operation(kernels, count)
    return statistics.median(operations.seconds), operations.names, operations.is_even
