"""Measures packed models in MLX on the CPU beside MLX's BF16, in the same run; writes a page.

usage: bench_cpu.py --model FOLDER --binade COMMAND --results FILE [--runs N]

What is measured, and how, is in mlx_parts.py.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path

from bench_report import cpu_name, middle_and_spread, write_table

HERE = Path(__file__).parent
CHOSEN = """
import binade, ctypes, pathlib
library = ctypes.CDLL(str(next(pathlib.Path(binade.__file__).parent.glob("libbinade.*"))))
library.binade_cpu.restype = ctypes.c_char_p
print(library.binade_cpu().decode())
"""
THREADS = (1, 2)
PROFILED = {
    "short": "a token behind a prompt of 16",
    "long": "a token behind a prompt of 512",
    "prompt": "the prompt of 512 itself",
}


def run_python(arguments: list, kernels: str, threads: int) -> str:
    env = {**os.environ, "BINADE_CPU": kernels, "BINADE_NUM_THREADS": str(threads)}
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}{done.stdout}")
    return done.stdout.strip()


def measure(kernels: str, threads: int, *arguments) -> dict:
    output = run_python([HERE / "mlx_parts.py", *arguments], kernels, threads)
    print(f"{kernels}, {threads} threads: {arguments[0]}: {output}", flush=True)
    return json.loads(output)


def find_kernels() -> list[str]:
    """The sets that this CPU has, best first."""
    return [
        kernels
        for kernels in ("avx512", "avx2", "neon")
        if run_python(["-c", CHOSEN], kernels, 1) == kernels
    ]


def pack(binade: str, model: Path, folder: Path) -> dict[int, Path]:
    packs = {}
    for number in (1, 2):
        packs[number] = folder / f"format{number}"
        command = [binade, "pack", model, "--out", packs[number], "--format", str(number), "-q"]
        subprocess.run(command, check=True)
    return packs


def measure_all(options, folder: Path) -> dict:
    sets = find_kernels()
    packs = pack(options.binade, options.model, folder)
    results = {"kernels": sets, "products": [], "generate": [], "transcode": [], "profile": []}
    for kernels in sets:
        for threads in THREADS:
            row = {"kernels": kernels, "threads": threads}
            row["seconds"] = measure(kernels, threads, "products")
            results["products"].append(row)
        for number, path in packs.items():
            row = {"kernels": kernels, "format": number}
            results["transcode"].append({**row, **measure(kernels, 1, "transcode", path)})
    for threads in THREADS:
        row = {"kernels": sets[0], "threads": threads}
        seconds = measure(sets[0], threads, "generate", options.model, packs[2], options.runs)
        results["generate"].append({**row, "seconds": seconds})
        parts = measure(sets[0], threads, "profile", packs[2])
        results["profile"].append({**row, "parts": parts})
    results["load"] = measure_loads(options, sets[0], packs[2])
    return results


def measure_loads(options, kernels: str, packed: Path) -> dict:
    sides = {"mlx": options.model, "r4": packed}
    loads: dict[str, list] = {side: [] for side in sides}
    for _ in range(options.runs + 1):
        for side, path in sides.items():
            loads[side].append(measure(kernels, max(THREADS), "load", path))
    report = {}
    for side, rows in loads.items():
        rows = rows[1:]  # the first fills the page cache
        report[side] = {key: [row[key] for row in rows] for key in rows[0]}
        report[side]["disk"] = sum(p.stat().st_size for p in sides[side].glob("*.safetensors"))
    return report


# ---- Report


def show(seconds: list[float], scale: float, per_second: bool, digits: int = 2) -> str:
    """The median, as a rate (scale / seconds) or a time (scale * seconds), and the spread."""
    median, spread = middle_and_spread(seconds)
    value = scale / median if per_second else scale * median
    return f"{value:.{digits}f} ± {100 * spread:.0f} %"


def ratio(mlx: list[float], r4: list[float]) -> str:
    return f"{statistics.median(mlx) / statistics.median(r4):.1f}x"


def write_products(lines: list[str], results: dict) -> None:
    lines += ["## Products", ""]
    lines += ["x is [M, 4096], W [4096, 4096]; four weights in turns, more than the cache holds."]
    lines += ["Every product is first compared with MLX's, bit for bit.", ""]
    rows = []
    for row in results["products"]:
        for m, seconds in row["seconds"].items():
            rows.append(
                [f"M = {m}, {row['kernels']}", str(row["threads"])]
                + [show(seconds[side], 1e3, False) for side in ("mlx", "r4")]
                + [ratio(seconds["mlx"], seconds["r4"])]
            )
    head = ["product", "threads", "MLX BF16, ms", "packed, ms", "ratio"]
    write_table(lines, head, sorted(rows, key=lambda row: int(row[0].split()[2].rstrip(","))))


def write_generation(lines: list[str], results: dict) -> None:
    lines += [f"## {results['model']} in mlx-lm", ""]
    lines += ["Tokens a second; greedy, both sides in turns, and their tokens are the same.", ""]
    kinds = {
        "decode_short": ("decode, behind a prompt of 16", 1),
        "decode_long": ("decode, behind a prompt of 512", 1),
        "prompt": ("prompt of 512", 512),
    }
    rows = []
    for row in results["generate"]:
        sides = row["seconds"]
        for kind, (label, ntokens) in kinds.items():
            mlx, r4 = sides["mlx"][kind], sides["r4"][kind]
            shown = [show(seconds, ntokens, True, 1) for seconds in (mlx, r4)]
            label = f"{label}, {row['kernels']}"
            rows.append([label, str(row["threads"]), *shown, ratio(mlx, r4)])
    head = ["", "threads", "MLX BF16, tokens/s", "packed, tokens/s", "ratio"]
    write_table(lines, head, rows)


def write_profile(lines: list[str], results: dict) -> None:
    lines += ["### Where the time of the packed model goes", ""]
    lines += ["Milliseconds; steps are computed one by one, without the overlap of generation."]
    lines += ["Products and attention are timed alone; what the rest is, is the difference.", ""]
    rows = []
    for row in results["profile"]:
        for kind, label in PROFILED.items():
            part = row["parts"][kind]
            total = part["build"] + part["compute"]
            rest = part["compute"] - part["products"] - part["attention"]
            shares = [part["products"], part["attention"], rest, part["build"]]
            cells = [f"{1e3 * s:.1f} ({100 * s / total:.0f} %)" for s in shares]
            rows.append([label, str(row["threads"]), f"{1e3 * total:.1f}", *cells])
    head = ["", "threads", "all", "packed products", "attention (MLX)", "other operations (MLX)"]
    write_table(lines, [*head, "building the graph (Python)"], rows)
    profile = results["profile"][-1]["parts"]
    part = {kind: profile[kind]["products"] / profile[kind]["compute"] for kind in PROFILED}
    short, long, prompt = (f"{100 * part[kind]:.0f} %" for kind in ("short", "long", "prompt"))
    attention = 100 * profile["prompt"]["attention"] / profile["prompt"]["compute"]
    lines += [
        f"With {THREADS[-1]} threads the packed products are {short} of the computing of a token",
        f"behind a short prompt, {long} behind a long one, and {prompt} of a long prompt, of which",
        f"attention is {attention:.0f} %. What is not products is MLX's own: one thread, in BF16",
        "one number at a time, and for a token some thousand small operations. Both sides pay it",
        "alike, so it bounds their ratio, the more the smaller the model is.",
        "",
    ]


def write_loading(lines: list[str], results: dict) -> None:
    lines += ["## Loading", ""]
    lines += ["A whole load with the tokenizer, each in a new process, from the page cache."]
    lines += ["The peak is by how much resident memory rose; pages of mapped files count.", ""]
    rows = []
    for side, label in (("mlx", "mlx_lm.load, BF16"), ("r4", "binade.mlx.r4.load, packed")):
        load = results["load"][side]
        cells = [show(load["seconds"], 1, False), f"{load['disk'] / 1e6:.0f}"]
        cells += [f"{statistics.median(load[key]) / 1e6:.0f}" for key in ("kept", "peak")]
        rows.append([label, *cells])
    write_table(lines, ["", "seconds", "on disk, MB", "in memory, MB", "peak, MB"], rows)
    both = (results["load"][side]["seconds"] for side in ("r4", "mlx"))
    lines += [f"The packed load takes {ratio(*both)} the time of the other.", ""]
    lines += ["Transcoding the packed tensors, reading included, one thread:", ""]
    rows = [
        [
            f"format {row['format']}, {row['kernels']}",
            show(row["seconds"], row["nbytes"] / 1e9, True),
        ]
        for row in results["transcode"]
    ]
    write_table(lines, ["", "GB/s of BF16"], rows)


def write_report(results: dict, path: Path) -> None:
    lines = ["# Packed models in MLX on the CPU", "", f"Command: `{results['command']}`  "]
    lines += [f"Machine: {results['machine']}  ", f"Date: {results['date']}  "]
    lines += [f"Versions: {results['versions']}; all in tools/mlx.lock", ""]
    lines += ["Medians, and half of the distance between the fastest and the slowest run as a part"]
    lines += ["of them. MLX's own operations run on one thread, whatever the number in the table."]
    lines += [""]
    write_products(lines, results)
    write_generation(lines, results)
    write_profile(lines, results)
    write_loading(lines, results)
    path.write_text("\n".join(lines).rstrip() + "\n")
    path.with_suffix(".json").write_text(json.dumps(results, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--binade", required=True)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = measure_all(options, Path(folder))
    results |= {"command": "./run bench cpu", "model": options.model.name, "machine": cpu_name()}
    results["machine"] += f", {os.cpu_count()} CPUs, {sys.platform}"
    results["date"] = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    packages = (f"{name} {version(name)}" for name in ("mlx", "mlx-lm"))
    results["versions"] = ", ".join(packages)
    write_report(results, options.results)


if __name__ == "__main__":
    main()
