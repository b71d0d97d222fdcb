"""Lossless storage of BF16 checkpoints: reads, packs, restores and verifies them.

with binade.open("packed") as checkpoint:
    weights = checkpoint["model.norm.weight"].read()
"""

from __future__ import annotations

import ctypes
import dataclasses
import importlib
import operator
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Union, get_type_hints

import numpy as np
import numpy.typing as npt

from binade._library import BinadeError as BinadeError
from binade._library import DataError as DataError
from binade._library import FileError as FileError
from binade._library import UsageError as UsageError
from binade._library import call, call_interruptibly, encode, encode_optional, library, struct

# Without open, so that a * import leaves the builtin alone.
__all__ = [
    "BinadeError",
    "Checkpoint",
    "DataError",
    "FileError",
    "PackReport",
    "Tensor",
    "UnpackReport",
    "UsageError",
    "VerifyReport",
    "pack",
    "unpack",
    "verify",
]


def __dir__() -> list[str]:
    public = {*__all__, "open", "mlx"}
    return [name for name in globals() if name in public or name.startswith("__")]


__version__: str = library.binade_version().decode()
Path = Union[str, "os.PathLike[str]"]
#: Called with the bytes done and in all, from any thread. If it raises, all is undone.
Progress = Callable[[int, int], object]
#: Called with a sentence that the user should know, such as a file left out.
Note = Callable[[str], object]

# The name is a pointer, not a string, as it may hold NUL.
_TensorStruct = struct(
    "name:p length:z dtype:s ndim:z shape:p rows:Q cols:Q nbytes:Q stored:Q packed:i cls:i file:s"
)
_DTYPES = {f"{kind.upper()}{8 * n}": f"<{kind}{n}" for kind in "iu" for n in (1, 2, 4, 8)}
_DTYPES |= {"F16": "<f2", "F32": "<f4", "F64": "<f8", "C64": "<c8", "BOOL": "?", "BF16": "<u2"}


def _import_bfloat16() -> Any:
    try:
        return importlib.import_module("ml_dtypes").bfloat16
    except ImportError as error:
        raise ImportError("bfloat16 needs ml_dtypes: pip install 'binade[bfloat16]'") from error


class _Handle:
    """An open checkpoint; closed when nobody holds this object any more, so never during a read."""

    def __init__(self, path: Path, revision: str | None):
        self.pointer = ctypes.c_void_p()
        call("open", encode(path), encode_optional(revision), ctypes.byref(self.pointer))

    def __del__(self, close: Any = library.binade_close) -> None:
        close(self.pointer)


@dataclasses.dataclass(frozen=True)
class Tensor:
    """One tensor of the original checkpoint, seen as rows x cols: cols is the last dimension."""

    name: str
    dtype: str  #: as in the file, for example "BF16"
    shape: tuple[int, ...]
    rows: int
    cols: int
    nbytes: int  #: of the original
    stored_nbytes: int  #: of what the checkpoint holds for it
    packed: bool
    cls: str  #: "linear", "embed", "ple", "mm" or "other"
    file: str  #: the shard that holds it
    _checkpoint: Checkpoint = dataclasses.field(repr=False, compare=False)
    _index: int = dataclasses.field(repr=False, compare=False)

    def read(
        self, row0: int | None = None, row1: int | None = None, *, bfloat16: bool = False
    ) -> npt.NDArray[Any]:
        """Returns the tensor in its shape, or only rows [row0, row1) as [row1 - row0, cols].

        BF16 comes as uint16 bit patterns, or with `bfloat16` as ml_dtypes.bfloat16; a dtype that
        numpy does not have as bytes, which the last dimension then counts.
        """
        first = 0 if row0 is None else operator.index(row0)
        behind = self.rows if row1 is None else operator.index(row1)
        if not 0 <= first <= behind <= self.rows:
            raise UsageError(
                f"tensor {self.name!r}: found rows [{first}, {behind}),"
                f" expected 0 <= row0 <= row1 <= {self.rows}"
            )
        dtype: Any = _DTYPES.get(self.dtype)
        if bfloat16 and self.dtype == "BF16":
            dtype = _import_bfloat16()
        handle = self._checkpoint._held()
        row_nbytes = self.nbytes // self.rows if self.rows else 0
        data = np.empty((behind - first) * row_nbytes, np.uint8)
        call("read_rows", handle.pointer, self._index, first, behind, data.ctypes.data, data.nbytes)
        cols = self.cols if dtype or not self.rows else row_nbytes
        shape = self.shape if dtype else (*self.shape[:-1], cols)
        part = row0 is not None or row1 is not None
        return data.view(dtype or np.uint8).reshape((behind - first, cols) if part else shape)


class Checkpoint(Mapping[str, Tensor]):
    """The tensors of a checkpoint, packed or not, by name; in shard and then file order.

    Opened by a directory or a hub id in the local Hugging Face cache; a context manager. Several
    threads may read at once.
    """

    def __init__(self, path: Path, revision: str | None = None):
        self._handle: _Handle | None = _Handle(path, revision)
        pointer = self._handle.pointer
        self.path: str = os.fsdecode(library.binade_path(pointer))
        self.format: int = library.binade_format(pointer)  #: 0: not packed
        self.has_records: bool = bool(library.binade_has_records(pointer))

    def _held(self) -> _Handle:
        """For a local variable, which keeps it open, and what its structs point at."""
        handle = self._handle
        if handle is None:
            raise UsageError(f"{self.path}: is closed")
        return handle

    def _get(self, i: int) -> Tensor:
        t = _TensorStruct()
        handle = self._held()
        library.binade_get(handle.pointer, i, ctypes.byref(t))
        name = ctypes.string_at(t.name, t.length).decode()
        shape = (ctypes.c_uint64 * t.ndim).from_address(t.shape) if t.ndim else ()
        sizes = (t.rows, t.cols, t.nbytes, t.stored)
        cls = library.binade_class_name(t.cls).decode()
        where = (os.fsdecode(t.file), self, i)
        return Tensor(name, t.dtype.decode(), tuple(shape), *sizes, bool(t.packed), cls, *where)

    def __getitem__(self, name: str) -> Tensor:
        handle = self._held()
        if not isinstance(name, str):
            raise KeyError(name)
        text = name.encode(errors="surrogatepass")  # such a name is simply not there
        i = library.binade_find(handle.pointer, text, len(text))
        if i >= len(self):
            raise KeyError(name)
        return self._get(i)

    def __iter__(self) -> Iterator[str]:
        return (self._get(i).name for i in range(len(self)))

    def __len__(self) -> int:
        handle = self._held()
        return library.binade_count(handle.pointer)

    def close(self) -> None:
        """Closes the files, once the reads that are under way in other threads end."""
        self._handle = None

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


open = Checkpoint


class PackReport(NamedTuple):
    input_nbytes: int  #: of the original shards
    output_nbytes: int  #: of the packed shards
    nweights: int  #: packed weights
    nbits: int  #: their parts, in bits
    npacked: int  #: packed tensors
    ntensors: int
    nfiles: int  #: files of the original that the pack carries
    seconds: float


class UnpackReport(NamedTuple):
    input_nbytes: int  #: of the packed shards
    output_nbytes: int  #: of the restored shards
    nfiles: int
    ntensors: int
    whole_files: bool  #: every original file byte for byte; else tensor for tensor
    seconds: float


class VerifyReport(NamedTuple):
    nfiles: int
    ntensors: int
    nbytes: int  #: of the original
    proven: bool  #: by the SHA-256 of every original file
    compared: bool  #: with the directory `against`
    seconds: float


_EventStruct = struct("kind:i done:Q total:Q text:s")
_EventFunction = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(_EventStruct))
_PROGRESS, _NOTE = 0, 1
_THREADS_MAX = 1024  # as for the command


def _run(name: str, paths: list[Path], fields: str, values: Any, report: Any, events: Any) -> Any:
    """Calls with an options struct of `fields` and those that all options structs have."""
    progress, note = events
    raised: list[BaseException] = []

    @_EventFunction  # also without functions to call: it is what lets Ctrl-C cancel
    def handle(_: int | None, pointer: Any) -> int:
        try:
            event = pointer.contents
            if event.kind == _PROGRESS and progress and not raised:
                progress(event.done, event.total)
            elif event.kind == _NOTE and note and not raised:
                note(event.text.decode(errors="replace"))
        except BaseException as error:
            raised.append(error)
        return len(raised)

    options_type = struct(f"size:z {fields} nthreads:u event:p user:p")
    event = ctypes.cast(handle, ctypes.c_void_p)
    options = options_type(ctypes.sizeof(options_type), *values, event)
    hints = get_type_hints(report)
    letters = {int: "Q", bool: "i", float: "d"}
    result = struct(" ".join(f"{key}:{letters[hint]}" for key, hint in hints.items()))()
    encoded = map(encode, paths)
    try:
        call_interruptibly(raised, name, *encoded, ctypes.byref(options), ctypes.byref(result))
    except BinadeError:
        if not raised:
            raise
    if raised:
        raise raised[0]
    return report(*(hint(getattr(result, key)) for key, hint in hints.items()))


def _check_threads(threads: int) -> int:
    """C would take the lowest bits of any number."""
    if not 0 <= operator.index(threads) <= _THREADS_MAX:
        raise UsageError(f"threads: found {threads}, expected 0 to {_THREADS_MAX}")
    return threads


def pack(
    model: Path,
    out: Path,
    *,
    format: int = 2,
    classes: str | Iterable[str] = ("linear", "embed"),
    revision: str | None = None,
    exclude: str | Iterable[str] = (),
    records: bool = True,
    force: bool = False,
    threads: int = 0,
    progress: Progress | None = None,
    note: Note | None = None,
) -> PackReport:
    """Packs a directory or cached hub id into the new directory `out`.

    Tensors that match a pattern in `exclude` are not packed; it and `classes` may be one string.
    Without `records` unpacking restores tensors rather than files. `force` replaces an older pack.
    `threads` 0 is one for each CPU.
    """
    if operator.index(format) not in (1, 2):
        raise UsageError(f"format {format}: only 1 and 2 exist")
    names = encode(classes if isinstance(classes, str) else ",".join(classes))
    patterns = [encode(text) for text in ([exclude] if isinstance(exclude, str) else exclude)]
    array = (ctypes.c_char_p * len(patterns))(*patterns)
    pointer = ctypes.cast(array, ctypes.c_void_p)  # keeps the array as long as the options are
    fields = "format:i classes:s revision:s exclude:p nexclude:z no_hash:i force:i"
    values = [format, names, encode_optional(revision), pointer, len(patterns)]
    values += [not records, force, _check_threads(threads)]
    return _run("pack", [model, out], fields, values, PackReport, (progress, note))


def unpack(
    packed: Path,
    out: Path,
    *,
    revision: str | None = None,
    threads: int = 0,
    progress: Progress | None = None,
    note: Note | None = None,
) -> UnpackReport:
    """Restores the original checkpoint in the new directory `out`."""
    fields, values = "revision:s", (encode_optional(revision), _check_threads(threads))
    return _run("unpack", [packed, out], fields, values, UnpackReport, (progress, note))


def verify(
    packed: Path,
    *,
    against: Path | None = None,
    revision: str | None = None,
    threads: int = 0,
    progress: Progress | None = None,
    note: Note | None = None,
) -> VerifyReport:
    """Decodes everything and checks every checksum; compares with the directory `against`."""
    fields = "revision:s against:s"
    values = (encode_optional(revision), encode_optional(against), _check_threads(threads))
    return _run("verify", [packed], fields, values, VerifyReport, (progress, note))
