"""A program may have a locale whose numbers have a comma: its packs have the same text."""

import json
import os
import subprocess
import sys

import binade
from cli_harness import SHARD, make_tensors, write_shard

LOCALE = """LC_NUMERIC
decimal_point "<U002C>"
thousands_sep ""
grouping -1
END LC_NUMERIC
"""
CHARMAP = """<code_set_name> ANSI_X3.4-1968
<comment_char> %
<escape_char> /
CHARMAP
{}END CHARMAP
"""
PROGRAM = """
import locale, sys
import binade
locale.setlocale(locale.LC_NUMERIC, sys.argv[1])
assert locale.localeconv()["decimal_point"] == ","
binade.pack(sys.argv[2], sys.argv[3])
binade.verify(sys.argv[3])
"""


def make_locale(directory):
    """The name of a locale with a comma; compiled here, since systems often have C alone."""
    if sys.platform == "darwin":
        return "de_DE.UTF-8"
    (directory / "source").write_text(LOCALE)
    codes = "".join(f"<U{code:04X}> /x{code:02x} {code}\n" for code in range(128))
    (directory / "ascii").write_text(CHARMAP.format(codes))
    command = ["localedef", "-c", "-i", "source", "-f", "./ascii", "./comma"]
    subprocess.run(command, cwd=directory, check=False, capture_output=True)  # 1: has warned
    assert (directory / "comma" / "LC_NUMERIC").is_file()
    return "comma"


def test_a_comma_in_numbers(tmp_path):
    model, packed = tmp_path / "model", tmp_path / "packed"
    model.mkdir()
    write_shard(model / SHARD, make_tensors())
    command = [sys.executable, "-c", PROGRAM, make_locale(tmp_path), model, packed]
    env = os.environ | {"LOCPATH": str(tmp_path)}
    done = subprocess.run(command, env=env, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert isinstance(json.loads((packed / "binade_pack.json").read_text())["seconds"], float)
    binade.verify(packed)
