"""Measures packed models in MLX on an NVIDIA GPU beside MLX's BF16, in the same run; writes a page.

usage: bench_gpu.py [--results FILE.md] [PART...]

Parts are matvec, moe, rebuild, prompts, load, and decode, which is decode-8b and decode-26b; if
none, all. Results of parts that are not measured are kept from the file beside the page, as far as
they are of the same GPU and versions. What is measured, and how, is in gpu_parts.py and
gpu_products.py. Kernels are timed by a library that `./run bench gpu` builds: kernel_times.py.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench_report import middle_and_spread, write_table
from gpu_tables import KERNEL_TIMES, write_matvec, write_moe, write_prompts, write_rebuild

HERE = Path(__file__).parent
DECODED = {"decode-8b": "Llama 3.1 8B", "decode-26b": "Gemma 4 26B-A4B"}
BY_KERNELS = ("matvec", "moe", "rebuild", "prompts")
PARTS = (*BY_KERNELS, "load", *DECODED)
DEVICE = """
import json
import mlx.core as mx
if not mx.is_available(mx.gpu):
    raise SystemExit("this benchmark needs an NVIDIA GPU and MLX for CUDA; this MLX has no GPU")
print(json.dumps(mx.device_info(mx.gpu).get("device_name", "a GPU")))
"""


class Failed(Exception):  # noqa: N818  # of which standard error has told
    pass


def run_python(*arguments, **environment) -> Any:
    """Standard error passes through; standard output is one JSON value."""
    command = [sys.executable, *map(str, arguments)]
    env = {**os.environ, **environment}
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise Failed
    return json.loads(done.stdout)


def measure(part: str) -> dict:
    """Those of BY_KERNELS are named by how they were timed, since older results were not so."""
    program = HERE / "gpu_parts.py"
    if part in DECODED:
        return run_python(program, "decode", DECODED[part])
    if part not in BY_KERNELS:
        return run_python(program, part)
    measured = run_python(program, part, MLX_USE_CUDA_GRAPHS="0")
    if part == "matvec":
        evaluated = run_python(program, "evaluated", MLX_USE_CUDA_GRAPHS="1")
        for row, other in zip(measured, evaluated, strict=True):
            row["evaluated"] = other
    rows = {"rows": measured} if isinstance(measured, list) else measured
    return {"timed_by": "kernels", **rows}


def still_holds(part: str, result: dict) -> bool:
    return part not in BY_KERNELS or result.get("timed_by") == "kernels"


# ---- Report


def write_load(lines: list[str], part: dict) -> None:
    lines += ["## Loading", "", f"{part['nbytes'] / 1e9:.2f} GB of BF16 in the shapes of Llama 3.1"]
    lines += ["8B, from the page cache; seconds, and memory on the GPU.", ""]
    rows = []
    for side, label in (("mlx", "BF16"), ("format1", "format 1"), ("format2", "format 2")):
        load = part[side]
        median, spread = middle_and_spread(load["seconds"])
        memory = [f"{statistics.median(load[key]) / 1e9:.2f}" for key in ("kept", "peak")]
        speed = f"{part['nbytes'] / median / 1e9:.2f}"
        rows.append([label, f"{median:.2f} ± {100 * spread:.0f} %", speed, *memory])
    write_table(lines, ["", "seconds", "GB/s of BF16", "kept, GB", "peak, GB"], rows)


def write_decode(lines: list[str], part: dict) -> None:
    lines += [f"## {part['model']} in mlx-lm", "", "Random weights in all its layers; greedy, 200"]
    lines += ["tokens behind a prompt of 40, both sides in turns. Their tokens are the same;"]
    lines += [f"{part['distinct_tokens']} are distinct.", ""]
    if not part["mlx_repeats_itself"]:
        lines += ["MLX's BF16 did not always repeat its own tokens behind the prompt of 2048, so"]
        lines += ["that those are not compared.", ""]
    sides = [part["sides"][side] for side in ("mlx", "r4")]
    rows = []
    for key, label, digits in (
        ("decode", "tokens/s", 1),
        ("first", "first token of a prompt of 40, ms", 1),
        ("first_long", "first token of a prompt of 2048, ms", 1),
    ):
        shown = []
        for side in sides:
            median, spread = middle_and_spread(side[key])
            value = 1 / median if key == "decode" else 1e3 * median
            shown.append(f"{value:.{digits}f} ± {100 * spread:.0f} %")
        medians = [statistics.median(side[key]) for side in sides]
        rows.append([label, *shown, f"{medians[0] / medians[1]:.2f}x"])
    for key, label in (
        ("nbytes", "the model in memory, GB"),
        ("working", "memory beyond it, with a prompt of 2048, GB"),
    ):
        shown = [f"{side[key] / 1e9:.2f}" for side in sides]
        rows.append([label, *shown, ""])
    write_table(lines, ["", "MLX BF16", "packed", "ratio"], rows)


def write_report(results: dict, path: Path) -> None:
    lines = ["# Packed models in MLX on an NVIDIA GPU", "", "Command: `./run bench gpu`  "]
    lines += [f"Machine: {results['device']}  ", f"Date: {results['date']}  "]
    lines += [f"Versions: {results['versions']}", ""]
    lines += ["Medians, and half of the distance between the fastest and the slowest run as a part"]
    lines += [
        "of them. Weights rotate through more memory than the cache holds. What operations give"
    ]
    lines += ["is compared bit for bit first, and all tokens of models.", ""]
    parts = results["parts"]
    if any(name in parts for name in BY_KERNELS):
        lines += KERNEL_TIMES
    if "matvec" in parts:
        write_matvec(lines, parts["matvec"], results["device"])
    for name, write in (
        ("moe", write_moe),
        ("rebuild", write_rebuild),
        ("prompts", write_prompts),
        ("load", write_load),
    ):
        if name in parts:
            write(lines, parts[name])
    for name in DECODED:
        if name in parts:
            write_decode(lines, parts[name])
    path.write_text("\n".join(lines).rstrip() + "\n")
    path.with_suffix(".json").write_text(json.dumps(results, indent=1) + "\n")


def installed_version(name: str) -> str:
    """Empty where a package lies there without what pip would know of it."""
    try:
        return f"{name} {version(name)}"
    except ModuleNotFoundError:
        return ""


def begin(path: Path) -> dict:
    """What is known before anything is measured; with older parts that still hold."""
    names = ("mlx", "mlx-lm", "mlx-cuda-13", "mlx-cuda-12", "nvidia-cublas", "nvidia-cublas-cu12")
    results = {
        "device": run_python("-c", DEVICE),
        "versions": ", ".join(filter(None, map(installed_version, names))),
        "parts": {},
    }
    file = path.with_suffix(".json")
    if file.exists():
        older = json.loads(file.read_text())
        if all(older.get(key) == results[key] for key in ("device", "versions")):
            parts = older["parts"]
            results["parts"] = {
                name: parts[name] for name in parts if still_holds(name, parts[name])
            }
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    results_dir = HERE / "results"
    parser.add_argument("--results", type=Path, default=results_dir / "gpu_h200.md")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(("decode", *PARTS)))
    options = parser.parse_args()
    chosen: list[str] = []
    for part in options.parts or PARTS:
        if part not in ("decode", *PARTS):
            parser.error(f"no part is called {part}")
        chosen += DECODED if part == "decode" else [part]
    try:
        results = begin(options.results)
    except Failed:
        raise SystemExit(2) from None
    failed = []
    for part in chosen:
        try:
            results["parts"][part] = measure(part)
        except Failed:
            failed.append(part)
            continue
        results["date"] = datetime.now(timezone.utc).strftime("%Y-%m-%d")
        write_report(results, options.results)
    if failed:
        raise SystemExit(f"bench_gpu.py: failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
