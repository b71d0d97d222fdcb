"""The codec benchmark: `./run bench codec` sets everything up and calls this.

usage: bench_codec.py --models FOLDER --memory PROGRAM --binade PROGRAM --package PROGRAM
                      --results FILE.md [--runs N]

Two kinds of measurement, on three models: weights from memory to memory on one core, by
bench_memory.c and bench_rivals.py; and whole commands, by wall clock, with their peak memory.
Inputs are in the page cache, outputs go to /dev/shm. This program imports nothing large: a child's
peak memory is never reported below that of the process it was started from.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

from bench_report import cpu_name, middle_and_spread, write_table

HERE = Path(__file__).parent
CHUNK = 1 << 20
CLASSES = {
    "SmolLM2-135M-Instruct": "linear,embed",
    "minilm": "linear,embed,other",
    "synthetic": "linear,embed",
}
# codec, kernels; the last row shows what plain C reaches.
MEMORY_CODECS = [
    ("binade2", ""),
    ("binade1", ""),
    ("binade2", "avx2"),
    ("binade1", "avx2"),
    ("binade2", "plain"),
    ("binade1", "plain"),
    ("zipnn", ""),
    ("openzl", ""),
    ("zstd", ""),
    ("lz4", ""),
    ("copy", ""),
]
LABELS = {
    "binade2": "Binade format 2",
    "binade1": "Binade format 1",
    "zipnn": "ZipNN 0.5.4",
    "openzl": "OpenZL 0.3.0 (BF16 split, Huffman)",
    "zstd": "zstd -1",
    "lz4": "lz4",
    "copy": "memcpy",
}


def run_timed(command: list, env: dict | None = None) -> tuple[float, int, str]:
    """Seconds, peak resident bytes and standard output of a command that must succeed."""
    command = [str(part) for part in command]
    started = time.perf_counter()
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, **(env or {})}
    )
    output = child.stdout.read().decode()
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - started
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{output}")
    return seconds, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024), output


def read_files(folder: Path) -> int:
    """Puts every file of a folder into the page cache; the number of bytes."""
    total = 0
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                while chunk := file.read(CHUNK):
                    total += len(chunk)
    return total


# ---- From memory to memory ----


def extract_weights(binade: str, model: Path, classes: str, folder: Path) -> tuple[Path, Path]:
    """Writes the tensors that Binade packs, back to back, and their rows and columns."""
    packed = folder / "packed"
    run_timed([binade, "pack", model, "--out", packed, "--classes", classes, "--no-hash"])
    names = json.loads((packed / "binade_pack.json").read_text())["tensors"]
    shutil.rmtree(packed)
    weights, shapes = folder / "weights.bin", folder / "shapes.txt"
    with (model / "model.safetensors").open("rb") as source, weights.open("wb") as target:
        start = 8 + int.from_bytes(source.read(8), "little")
        header = json.loads(source.read(start - 8))
        lines = []
        for name in names:
            entry = header[name]
            begin, end = entry["data_offsets"]
            source.seek(start + begin)
            for at in range(begin, end, CHUNK):
                target.write(source.read(min(CHUNK, end - at)))
            cols = entry["shape"][-1]
            lines.append(f"{(end - begin) // 2 // cols} {cols}\n")
    shapes.write_text("".join(lines))
    return weights, shapes


def measure_memory(options, codec: str, kernels: str, weights: Path, shapes: Path) -> dict | None:
    """None if this CPU lacks the kernels asked for."""
    rival = codec in ("zipnn", "openzl")
    program = [sys.executable, HERE / "bench_rivals.py"] if rival else [options.memory]
    env = {"BINADE_CPU": kernels} if kernels else {}
    if rival:
        # These allocate their results; let them keep the pages from one run to the next.
        keep = str(1 << 40)
        env = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": keep, "PYTHONWARNINGS": "ignore"}
    _, _, output = run_timed([*program, codec, 1, options.runs, weights, shapes], env)
    report = json.loads(output.strip().splitlines()[-1])
    if kernels and report["kernels"] != kernels:
        return None
    nweights = report["nbytes"] / 2
    row = {"codec": codec, "kernels": report.get("kernels") if "binade" in codec else None}
    row["bits"] = 8 * report["coded_nbytes"] / nweights
    for way in ("encode", "decode"):
        seconds, spread = middle_and_spread(report[way])
        row[way] = report["nbytes"] / seconds / 1e9
        row[way + "_spread"] = spread
    return row


# ---- Whole commands ----


class Commands:
    """Times commands on one model, into /dev/shm."""

    def __init__(self, options, model: Path, classes: str, out: Path):
        self.options, self.model, self.classes, self.out = options, model, classes, out
        self.nbytes = read_files(model)
        self.rows: list[dict] = []

    def measure(self, label: str, threads: int, runs: int, command: list, product: Path | None):
        """The product is removed before every run; the last one stays."""
        seconds, peak = [], 0
        for run in range(runs + 1 if runs > 1 else 1):
            if product:
                shutil.rmtree(product, ignore_errors=True)
                product.unlink(missing_ok=True)
            took, rss, _ = run_timed(command)
            peak = max(peak, rss)
            if run > 0 or runs == 1:
                seconds.append(took)
        median, spread = middle_and_spread(seconds)
        row = {"label": label, "threads": threads, "runs": runs, "rate": self.nbytes / median / 1e9}
        self.rows.append({**row, "spread": spread, "peak": peak})

    def measure_binade(self, number: int) -> None:
        binade, runs = self.options.binade, self.options.runs
        packed, restored = self.out / "packed", self.out / "restored"
        for threads in (1, 2):
            tail = ["--threads", threads, "--quiet"]
            pack = [binade, "pack", self.model, "--out", packed, "--format", number]
            pack += ["--classes", self.classes, *tail]
            name = f"binade, format {number}:"
            self.measure(f"{name} pack --no-hash", threads, runs, [*pack, "--no-hash"], packed)
            self.measure(f"{name} pack", threads, runs, pack, packed)
            unpack = [binade, "unpack", packed, "--out", restored, *tail]
            self.measure(f"{name} unpack", threads, runs, unpack, restored)
            shutil.rmtree(restored)
            verify = [binade, "verify", packed, *tail]
            self.measure(f"{name} verify", threads, runs, verify, None)
        shutil.rmtree(packed)

    def measure_rivals(self) -> None:
        shard, packed, restored = self.model / "model.safetensors", self.out / "p", self.out / "r"
        for threads in (1, 2):
            pack = ["zstd", "-1", f"-T{threads}", "-qf", shard, "-o", packed]
            self.measure("zstd -1", threads, self.options.runs, pack, packed)
        unpack = ["zstd", "-d", "-qf", packed, "-o", restored]
        self.measure("zstd -d", 1, self.options.runs, unpack, restored)
        self.measure("lz4 -1", 1, self.options.runs, ["lz4", "-1qf", shard, packed], packed)
        self.measure("lz4 -d", 1, self.options.runs, ["lz4", "-dqf", packed, restored], restored)
        packed.unlink()
        restored.unlink()

    def measure_package(self, where: str) -> None:
        """The published package: once, for it is slow. Its unpack of format 2 needs a GPU."""
        packed, restored = self.out / "packed", self.out / "restored"
        for number in (2, 1):
            pack = [self.options.package, "pack", self.model, "--out", packed, "--format", number]
            pack += ["--classes", self.classes]
            self.measure(f"package 0.1.1, format {number}: pack{where}", 1, 1, pack, packed)
        unpack = [self.options.package, "unpack", packed, "--out", restored]
        self.measure(f"package 0.1.1, format 1: unpack{where}", 1, 1, unpack, restored)
        shutil.rmtree(packed)
        shutil.rmtree(restored)


# ---- Report ----


def format_rate(rate: float, spread: float, runs: int = 2) -> str:
    digits = f"{rate:.2f}" if rate >= 0.1 else f"{rate:.4f}"
    return f"{digits} ± {100 * spread:.0f} %" if runs > 1 else digits


def write_report(results: dict, path: Path) -> None:
    lines = ["# The codec benchmark", "", f"Command: `{results['command']}`  "]
    lines.append(f"Machine: {results['machine']}  ")
    lines.append(f"Date: {results['date']}; kernels in use: {results['kernels']}")
    lines += ["", "GB/s are 10^9 bytes of BF16 a second: the median of the runs, and half of the"]
    lines += ["distance between the fastest and the slowest run as a part of it.", ""]
    for name, model in results["models"].items():
        lines.append(f"## {name}: {model['nbytes'] / 1e6:.0f} MB, --classes {model['classes']}")
        lines += ["", f"Memory to memory, one core, {results['runs']} runs:", ""]
        rows = []
        for row in model["memory"]:
            label = LABELS[row["codec"]] + (f", {row['kernels']}" if row["kernels"] else "")
            rates = [format_rate(row[way], row[way + "_spread"]) for way in ("encode", "decode")]
            rows.append([label, f"{row['bits']:.2f}", *rates])
        write_table(lines, ["codec", "bits a weight", "encode, GB/s", "decode, GB/s"], rows)
        lines += ["Commands, from the page cache to /dev/shm:", ""]
        rows = [
            [
                row["label"],
                str(row["threads"]),
                str(row["runs"]),
                format_rate(row["rate"], row["spread"], row["runs"]),
                f"{row['peak'] / 1e6:.0f}",
            ]
            for row in model["commands"]
        ]
        write_table(lines, ["command", "threads", "runs", "GB/s", "peak resident MB"], rows)
    path.write_text("\n".join(lines))
    path.with_suffix(".json").write_text(json.dumps(results, indent=1) + "\n")


def measure_model(options, name: str, out: Path) -> dict:
    model, classes = options.models / name, CLASSES[name]
    print(f"{name}: memory to memory", flush=True)
    weights, shapes = extract_weights(options.binade, model, classes, out)
    memory, seen = [], set()
    for codec, kernels in MEMORY_CODECS:
        row = measure_memory(options, codec, kernels, weights, shapes)
        if row and (codec, row["kernels"]) not in seen:
            seen.add((codec, row["kernels"]))
            memory.append(row)
    weights.unlink()
    print(f"{name}: commands", flush=True)
    commands = Commands(options, model, classes, out)
    for number in (2, 1):
        commands.measure_binade(number)
    commands.measure_rivals()
    if name == "synthetic":
        small = Commands(options, options.models / "slice", classes, out)
        small.measure_package(" (first layer only)")
        commands.rows += small.rows
    else:
        commands.measure_package("")
    rows = {"memory": memory, "commands": commands.rows}
    return {"classes": classes, "nbytes": commands.nbytes, **rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=5)
    for name in ("memory", "binade", "package"):
        parser.add_argument(f"--{name}", required=True)
    options = parser.parse_args()
    out = Path(f"/dev/shm/binade-bench-{os.getpid()}")
    out.mkdir()
    results = {"command": "./run bench codec", "runs": options.runs, "models": {}}
    system = f"{platform.system()} {platform.machine()}"
    results["machine"] = f"{cpu_name()}, {os.cpu_count()} CPUs, {system}"
    results["date"] = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    try:
        for name in CLASSES:
            results["models"][name] = measure_model(options, name, out)
    finally:
        shutil.rmtree(out)
    results["kernels"] = results["models"]["synthetic"]["memory"][0]["kernels"]
    write_report(results, options.results)


if __name__ == "__main__":
    main()
