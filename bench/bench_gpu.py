"""Measures packed models in MLX on an NVIDIA GPU beside MLX's BF16, in the same run; writes a page.

usage: bench_gpu.py [--results FILE.md] [PART...]

Parts are matvec, moe, rebuild, load, and decode, which is decode-8b and decode-26b; if none, all.
Results of parts that are not measured are kept from the file beside the page, as far as they are of
the same GPU and versions. What is measured, and how, is in gpu_parts.py.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path

from bench_report import middle_and_spread, write_table

HERE = Path(__file__).parent
DECODED = {"decode-8b": "Llama 3.1 8B", "decode-26b": "Gemma 4 26B-A4B"}
PARTS = ("matvec", "moe", "rebuild", "load", *DECODED)
# With MLX_USE_CUDA_GRAPHS=0 kernels run one after another.
MODES = {"in turn": "0", "as a graph": "1"}
BY_MODE = ("matvec", "moe")
# MLX's BF16 matvec as it was measured on an H200 before, microseconds.
KNOWN = {(4096, 4096): 13.4, (14336, 4096): 31.7, (128256, 4096): 238.0}
KNOWN_ON, TOLERATED = "H200", 0.1
LARGE = 8 << 20  # weights from which on bandwidth decides
DEVICE = """
import json
import mlx.core as mx
if not mx.is_available(mx.gpu):
    raise SystemExit("this benchmark needs an NVIDIA GPU and MLX for CUDA; this MLX has no GPU")
print(json.dumps(mx.device_info(mx.gpu).get("device_name", "a GPU")))
"""


class Failed(Exception):  # noqa: N818  # of which standard error has told
    pass


def run_python(*arguments, **environment) -> dict | list | str:
    """Standard error passes through; standard output is one JSON value."""
    command = [sys.executable, *map(str, arguments)]
    env = {**os.environ, **environment}
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise Failed
    return json.loads(done.stdout)


def measure(part: str) -> dict | list:
    program = HERE / "gpu_parts.py"
    if part in BY_MODE:
        return {
            mode: run_python(program, part, MLX_USE_CUDA_GRAPHS=value)
            for mode, value in MODES.items()
        }
    if part in DECODED:
        return run_python(program, "decode", DECODED[part])
    return run_python(program, part)


# ---- Report


def micro(seconds: list[float]) -> str:
    median, spread = middle_and_spread(seconds)
    return f"{1e6 * median:.1f} ± {100 * spread:.0f} %"


def ratio_of(row: dict) -> float:
    return statistics.median(row["mlx"]) / statistics.median(row["r4"])


def cells(row: dict) -> list[str]:
    late = " *" if row["late"] else ""
    return [micro(row["mlx"]), micro(row["r4"]), f"{ratio_of(row):.2f}x{late}"]


def size_of(row: dict) -> int:
    return row["rows"] * row["cols"]


def write_by_mode(lines: list[str], by_mode: dict, label: str, name: Callable[[dict], str]) -> None:
    """A table with three columns for each mode that was measured."""
    head = [label]
    for mode in by_mode:
        head += [f"MLX BF16, {mode}", "packed", "ratio"]
    rows = [
        [name(measured[0]), *(cell for row in measured for cell in cells(row))]
        for measured in zip(*by_mode.values(), strict=True)
    ]
    write_table(lines, head, rows)


def write_matvec(lines: list[str], by_mode: dict, device: str) -> None:
    lines += ["## One row of x", "", "Microseconds for every shape of the models that has at least"]
    lines += ["a million weights. *In turn*: kernels run one after another, as those of a model"]
    lines += ["must. *As a graph*: as MLX runs them by default; independent ones may overlap. The"]
    lines += ["time of a copy that hides the launching is taken off, so that where a spread is"]
    lines += ["wide, the ratio of that line says little."]
    lines += ["", "A * says that handing over took the CPU longer than the GPU was kept busy.", ""]
    write_by_mode(
        lines,
        by_mode,
        "rows x columns",
        lambda row: f"{row['rows']} x {row['cols']}: {', '.join(row['models'])}",
    )
    for mode, measured in by_mode.items():
        mean = statistics.geometric_mean(map(ratio_of, measured))
        worst = min((row for row in measured if size_of(row) >= LARGE), key=ratio_of)
        shape = f"{worst['rows']} x {worst['cols']}"
        lines += [f"{mode.capitalize()}: geometric mean {mean:.2f}x; the worst of at least"]
        lines += [f"{LARGE >> 20} * 2^20 weights is {shape} with {ratio_of(worst):.2f}x.", ""]
    if KNOWN_ON in device:
        write_known(lines, by_mode)


def write_known(lines: list[str], by_mode: dict) -> None:
    """Whether the BF16 column is what is known of this GPU."""
    for mode, measured in by_mode.items():
        texts = []
        for row in measured:
            known = KNOWN.get((row["rows"], row["cols"]))
            if known is None:
                continue
            found = 1e6 * statistics.median(row["mlx"])
            if abs(found / known - 1) > TOLERATED:
                texts.append(f"{row['rows']} x {row['cols']} {found:.1f}, not {known}")
        verdict = "; ".join(texts) or f"within {100 * TOLERATED:.0f} %"
        lines += [f"BF16 beside what MLX took on an {KNOWN_ON} before, {mode}: {verdict}.", ""]


def write_moe(lines: list[str], by_mode: dict) -> None:
    lines += [
        "## Experts",
        "",
        "128 experts of 704 x 2816, 8 for each token, chosen anew each time;",
    ]
    lines += ["microseconds. Gate and up are two operations of MLX and one on packed weights.", ""]
    write_by_mode(lines, by_mode, "", lambda row: f"{row['what']}, tokens: {row['tokens']}")


def write_rebuild(lines: list[str], part: dict) -> None:
    shape = f"{part['rows']} x {part['cols']}"
    lines += ["## Several rows of x", "", f"{shape}; the weight is rebuilt, and the product MLX's"]
    lines += ["own. Microseconds. Beside the rebuilding alone stands MLX negating BF16.", ""]
    rows = [["rebuilding alone", *cells(part["alone"])]]
    rows += [[f"M = {row['m']}", *cells(row)] for row in part["products"]]
    write_table(lines, ["", "MLX BF16", "packed", "ratio"], rows)
    seconds = statistics.median(part["alone"]["r4"])
    lines += [f"Rebuilding writes {2e-9 * size_of(part) / seconds:.0f} GB/s of BF16.", ""]


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
    if "matvec" in parts:
        write_matvec(lines, parts["matvec"], results["device"])
    for name, write in (("moe", write_moe), ("rebuild", write_rebuild), ("load", write_load)):
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
            results["parts"] = older["parts"]
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
