"""libbinade through ctypes: what this package uses of include/binade.h, and its failures."""

from __future__ import annotations

import ctypes.util
import os
import threading
from pathlib import Path
from typing import Any


class BinadeError(Exception):
    """A failure that the library reports in one sentence; out of memory is a MemoryError."""


class DataError(BinadeError, ValueError):
    """A file is corrupt or malformed, or two things that must agree differ."""


class UsageError(BinadeError, ValueError):
    """An argument is wrong, or the request makes no sense for this input."""


class FileError(BinadeError, OSError):
    """The system failed: an absent file, a full disk, no permission."""


_ERRORS = {1: DataError, 2: UsageError, 3: FileError, 4: MemoryError}

# Letters for types: int, unsigned, size_t, uint64_t, double, pointer, string.
_TYPES: dict[str, Any] = {
    **{"i": ctypes.c_int, "u": ctypes.c_uint, "z": ctypes.c_size_t, "Q": ctypes.c_uint64},
    **{"d": ctypes.c_double, "p": ctypes.c_void_p, "s": ctypes.c_char_p, "-": None},
}
# Result and arguments.
_SIGNATURES = {
    **{"version": "s", "class_name": "si", "open": "isspp", "close": "-p", "path": "sp"},
    **{"format": "ip", "has_records": "ip", "count": "zp", "get": "-pzp", "find": "zpsz"},
    **{"read_rows": "ipzQQpzp", "pack": "issppp", "unpack": "issppp", "verify": "isppp"},
}


def struct(fields: str) -> type[Any]:
    """A struct type from "name:letter name:letter"."""
    pairs = [field.split(":") for field in fields.split()]
    members = [(name, _TYPES[letter]) for name, letter in pairs]
    return type("Struct", (ctypes.Structure,), {"_fields_": members})


def _load() -> ctypes.CDLL:
    """BINADE_LIB, which is for tests, else the library inside this package, else the system's."""
    inside = next(Path(__file__).parent.glob("libbinade.*"), None)
    path = os.environ.get("BINADE_LIB") or inside or ctypes.util.find_library("binade")
    if not path:
        raise ImportError("libbinade is neither inside the package nor installed")
    library = ctypes.CDLL(os.fspath(path))
    for name, letters in _SIGNATURES.items():
        function = getattr(library, f"binade_{name}")
        function.restype, *function.argtypes = (_TYPES[letter] for letter in letters)
    return library


library = _load()


def call(name: str, *arguments: object) -> None:
    """Calls with the arguments and a binade_error; raises on a status other than 0."""
    message = ctypes.create_string_buffer(1024)
    status = getattr(library, f"binade_{name}")(*arguments, message)
    if status:
        raise _ERRORS.get(status, BinadeError)(message.value.decode(errors="replace"))


def call_interruptibly(raised: list[BaseException], name: str, *arguments: object) -> None:
    """Does call() in a thread of its own, while this one can be interrupted.

    Python raises KeyboardInterrupt in the main thread wherever that is: in a callback, ctypes might
    drop it. What is raised here comes first in `raised`, at which the callback must cancel.
    """
    failed: list[BaseException] = []
    ended = threading.Event()

    def work() -> None:
        try:
            call(name, *arguments)
        except BaseException as error:
            failed.append(error)
        ended.set()

    worker = threading.Thread(target=work)
    try:
        worker.start()
        while not ended.wait(0.2):  # a signal may reach another thread, which does not end a wait
            pass
    except BaseException as error:
        raised.insert(0, error)
        if worker.is_alive():
            ended.wait()  # all is undone then; a second Ctrl-C does not wait for it
        raise
    if failed:
        raise failed[0]


def encode(text: str | os.PathLike[str]) -> bytes:
    """A string or path for C, which would take it to end at a NUL."""
    path = os.fspath(text) if isinstance(text, os.PathLike) else text
    if not isinstance(path, str):
        raise TypeError(f"expected a str or os.PathLike[str], not {type(text).__name__}")
    if "\0" in path:
        raise UsageError(f"{text!r}: holds a NUL")
    return os.fsencode(path)


def encode_optional(text: str | os.PathLike[str] | None) -> bytes | None:
    return None if text is None else encode(text)
