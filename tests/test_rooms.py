"""Rooms: a file includes only headers of its own room and of rooms that its room may use."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ALLOWED = {
    "src/base": {"base"},
    "src/io": {"base", "io"},
    "src/format": {"base", "format"},
    "src/r4": {"base", "format", "r4"},
    "src/cpu": {"base", "format", "r4", "cpu"},
    "src/pack": {"base", "io", "format", "r4", "cpu", "pack"},
    "src/cuda": {"format", "cuda"},
    "src/metal": {"metal"},
    "src/mlx": {"mlx", "cuda", "metal"},  # and MLX's own headers, whose folder has the same name
}
# r4_ops.h is installed beside a header that includes it.
PUBLIC = {"binade.h", "binade_r4.h", "r4_ops.h"}
SOURCES = {".c", ".h", ".cpp", ".cu", ".cuh"}


def list_includes(path: Path) -> list[str]:
    return re.findall(r'^\s*#\s*include\s*"([^"]+)"', path.read_text(), re.MULTILINE)


def list_sources(room: str) -> list[Path]:
    files = sorted(path for path in (ROOT / room).rglob("*") if path.suffix in SOURCES)
    assert files, f"{room} holds no sources"
    return files


@pytest.mark.parametrize("room", ALLOWED)
def test_library_room(room):
    for path in list_sources(room):
        for include in list_includes(path):
            ok = include in PUBLIC or include.split("/")[0] in ALLOWED[room]
            assert ok, f"{path.relative_to(ROOT)} may not include {include}"


def test_command_uses_the_public_header_alone():
    own = {path.name for path in list_sources("cli")}
    for path in list_sources("cli"):
        for include in list_includes(path):
            ok = include == "binade.h" or include in own
            assert ok, f"{path.relative_to(ROOT)} may not include {include}"


def test_every_room_is_listed():
    rooms = {f"src/{path.parent.name}" for path in (ROOT / "src").rglob("*.h")}
    assert rooms == set(ALLOWED)


def test_file_names_do_not_repeat():
    names = [path.name for room in [*ALLOWED, "cli"] for path in list_sources(room)]
    assert sorted(set(names)) == sorted(names)
