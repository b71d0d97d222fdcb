"""The libraries export binade_* and nothing else, and everything that the headers declare."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
SHARED = Path(os.environ["BINADE_LIB"])


def list_declared() -> set[str]:
    names = set()
    for header in ("binade.h", "binade_r4.h"):
        text = (ROOT / "include" / header).read_text()
        code = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
        found = re.findall(r"BINADE_API\b[^;()]*?\b(binade_\w+)\(", code)
        assert found, f"no declaration found in include/{header}"
        names.update(found)
    return names


def list_symbols(library: Path, *options: str) -> set[str]:
    done = subprocess.run(
        ["nm", *options, str(library)], capture_output=True, text=True, check=True
    )
    # address, kind, name; Mach-O puts a _ before each name. U: needed, not defined here.
    found = re.findall(r"^[0-9a-fA-F]+ ([A-Za-z]) (\S+)$", done.stdout, re.MULTILINE)
    return {
        name.removeprefix("_") if sys.platform == "darwin" else name
        for kind, name in found
        if kind.isupper() and kind != "U"
    }


def test_shared_library_exports_what_the_headers_declare():
    options = ["-gU"] if sys.platform == "darwin" else ["-D", "--defined-only"]
    assert list_symbols(SHARED, *options) == list_declared()


def test_static_library_defines_what_the_headers_declare():
    assert list_declared() <= list_symbols(SHARED.with_name("libbinade.a"))
