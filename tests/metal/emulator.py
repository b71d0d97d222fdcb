"""Runs kernels of .metal files on a CPU. README.md tells how."""

import ctypes
import dataclasses

import numpy as np
from compiling import SANITIZED, build_runtime, compile_source
from sources import Body, Kernel, Source

__all__ = ["Body", "EmulationError", "Kernel", "Source", "compile_kernels"]

NBUFFERS = 31
FINDINGS = [
    *("divergent barrier", "inactive lane", "race", "double write", "uninitialised"),
    *("out of bounds", "stuck", "bad launch"),
]
ALLOWABLE = FINDINGS[:5]


class Uint3(ctypes.Structure):
    _fields_ = (("x", ctypes.c_uint32), ("y", ctypes.c_uint32), ("z", ctypes.c_uint32))


class Buffer(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("nbytes", ctypes.c_uint64))


class Options(ctypes.Structure):
    _fields_ = (
        *((n, ctypes.c_int32) for n in ("order", "flush", "mma", "dot", "sum", "fill")),
        *((n, ctypes.c_uint32) for n in ("allow", "seed")),
    )


class KernelEntry(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("call", ctypes.c_void_p),
        *((n, ctypes.c_uint32) for n in ("buffers", "written", "dynamic", "max_threads")),
    )


class ConstantEntry(ctypes.Structure):
    _fields_ = (("index", ctypes.c_int32), ("nbytes", ctypes.c_uint32), ("value", ctypes.c_void_p))


class LibraryTable(ctypes.Structure):
    _fields_ = (
        ("nkernels", ctypes.c_uint32),
        ("nconstants", ctypes.c_uint32),
        ("kernels", ctypes.POINTER(KernelEntry)),
        ("constants", ctypes.POINTER(ConstantEntry)),
    )


class LaunchData(ctypes.Structure):
    _fields_ = (
        ("kernel", ctypes.POINTER(KernelEntry)),
        ("buffers", Buffer * NBUFFERS),
        ("threadgroup_bytes", ctypes.c_uint32 * NBUFFERS),
        ("unset", ctypes.c_uint32),
        ("grid", Uint3),
        ("threadgroup", Uint3),
        ("options", Options),
    )


class CountsData(ctypes.Structure):
    _fields_ = (
        *((n, ctypes.c_uint64 * (NBUFFERS + 1))
          for n in ("loads", "load_bytes", "stores", "store_bytes")),
        *((n, ctypes.c_uint64)
          for n in ("barriers", "simd", "matrix", "float_ops", "int_ops", "other_ops")),
    )  # fmt: skip


class ResultData(ctypes.Structure):
    _fields_ = (
        ("findings", ctypes.c_uint64 * len(FINDINGS)),
        ("counts", CountsData),
        ("message", ctypes.c_char * 512),
    )


class EmulationError(Exception):
    """What a kernel did wrong. `findings` counts what was found, by name."""

    def __init__(self, message, findings):
        super().__init__(message)
        self.findings = findings


@dataclasses.dataclass
class Report:
    """Of a launch: findings that were allowed, and counts (of loads and stores: if checked)."""

    findings: dict
    counts: CountsData


class Library:
    def __init__(self, path):
        self._runtime = ctypes.CDLL(str(build_runtime()), mode=ctypes.RTLD_GLOBAL)
        self.path = path
        self._library = ctypes.CDLL(str(path))
        table = LibraryTable.in_dll(self._library, "emulated_library")
        self._kernels = {
            table.kernels[i].name.decode(): ctypes.pointer(table.kernels[i])
            for i in range(table.nkernels)
        }
        self._constants = [table.constants[i] for i in range(table.nconstants)]

    def names(self):
        return list(self._kernels)

    def set_constants(self, values):
        """Function constants by index; those not given are 0."""
        for entry in self._constants:
            raw = int(values.get(entry.index, 0)).to_bytes(entry.nbytes, "little")
            ctypes.memmove(entry.value, raw, entry.nbytes)
        unknown = set(values) - {entry.index for entry in self._constants}
        if unknown:
            raise ValueError(f"no function constants of these numbers: {sorted(unknown)}")

    def launch(
        self,
        name,
        buffers,
        grid,
        threadgroup,
        *,
        constants=None,
        threadgroup_bytes=None,
        allow=(),
        **options,
    ):
        """Runs a kernel on numpy arrays, a list or a dict by number, and changes those it writes.

        None stands for a buffer that is left out on purpose.
        """
        kernel = self._kernels[name]
        numbered = buffers if isinstance(buffers, dict) else dict(enumerate(buffers))
        data = LaunchData(kernel=kernel, grid=Uint3(*grid), threadgroup=Uint3(*threadgroup))
        copies = {i: guarded(a) for i, a in numbered.items() if a is not None}
        data.unset = sum(1 << i for i, array in numbered.items() if array is None)
        for i, copy in copies.items():
            data.buffers[i] = Buffer(copy.ctypes.data, copy.nbytes)
        for i, nbytes in (threadgroup_bytes or {}).items():
            data.threadgroup_bytes[i] = nbytes
        mask = sum(1 << FINDINGS.index(kind) for kind in allow if kind in ALLOWABLE)
        data.options = Options(**{"fill": 0xA5, "seed": 1, **options}, allow=mask)
        self.set_constants(constants or {})
        result = ResultData()
        failed = self._runtime.emulator_launch(ctypes.byref(data), ctypes.byref(result))
        findings = {n: c for n, c in zip(FINDINGS, result.findings, strict=True) if c}
        if failed:
            raise EmulationError(result.message.decode(), findings)
        for i, copy in copies.items():
            if kernel.contents.written >> i & 1:
                numbered[i].view(np.uint8).reshape(-1)[:] = copy
        return Report(findings, result.counts)


def guarded(array):
    """A copy of the bytes, with nothing that a kernel may touch within a page of them."""
    if SANITIZED:
        # A block of its own, around which the sanitizer watches.
        return np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8).copy()
    gap = 4096
    room = np.zeros(array.nbytes + 2 * gap + 64, np.uint8)
    start = gap + -(room.ctypes.data + gap) % 64
    copy = room[start : start + array.nbytes]
    copy[:] = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
    return copy


def compile_kernels(source, fma=True, checked=False, counted=False):
    """A library of a source's kernels. `checked` watches memory, `counted` counts operations."""
    return Library(compile_source(source, fma, checked, counted))
