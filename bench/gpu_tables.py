"""What bench_gpu.py writes of the products that gpu_products.py measures."""

import statistics
from collections.abc import Iterable

from bench_report import middle_and_spread, write_table

# What MLX's BF16 took on an H200 before, microseconds: matvec, evaluated together.
KNOWN = {
    (4096, 4096): 13.4,
    (14336, 4096): 31.7,
    (4096, 14336): 31.1,
    (15360, 3840): 30.8,
    (128256, 4096): 238.0,
}
KNOWN_ON, TOLERATED = "H200", 0.1
LARGE = 8 << 20  # weights from which on bandwidth decides
# Rows of x, both included: a decoding batch, short prompts, long ones.
BANDS = ((2, 64), (65, 512), (2048, 2048))
KERNEL_TIMES = [
    "*Kernel times* are by the GPU's own clock, as CUPTI records them: of an operation that",
    "launches several kernels, their sum. What lies between kernels is not in them: launching,",
    "waiting, and what MLX does on the CPU. Operations ran one after another, with",
    "MLX_USE_CUDA_GRAPHS=0, in rounds; a round counts with the median of its operations. All are",
    "microseconds.",
    "",
]
UNEVEN = "A * says that kernels could not be told apart by operation: the mean of a round counts."
UNREPEATED = "A + says that MLX's BF16 did not repeat its own bits, so that nothing is compared."


def micro(seconds: list[float]) -> str:
    median, spread = middle_and_spread(seconds)
    return f"{1e6 * median:.2f} ± {100 * spread:.0f} %"


def ratio_of(row: dict) -> float:
    return statistics.median(row["mlx"]) / statistics.median(row["r4"])


def marks_of(row: dict) -> str:
    uneven, unrepeated = not row.get("is_even", True), not row.get("is_repeated", True)
    return " *" * uneven + " +" * unrepeated


def cells(row: dict) -> list[str]:
    return [micro(row["mlx"]), micro(row["r4"]), f"{ratio_of(row):.2f}x{marks_of(row)}"]


def explain_marks(lines: list[str], rows: Iterable[dict]) -> None:
    """What the marks of a table say, if it has any."""
    marks = "".join(map(marks_of, rows))
    lines += [text for mark, text in (("*", UNEVEN), ("+", UNREPEATED)) if mark in marks]
    if marks:
        lines.append("")


def size_of(row: dict) -> int:
    return row["rows"] * row["cols"]


def shape_of(row: dict) -> str:
    return f"{row['rows']} x {row['cols']}"


# ---- One row of x


def write_matvec(lines: list[str], part: dict, device: str) -> None:
    rows = part["rows"]
    lines += ["## One row of x", "", "Kernel times for every shape of the models that has at least"]
    lines += [
        "a million weights. *Evaluated*: all products in one evaluation of MLX with its default"
    ]
    lines += ["settings, by the CPU's clock, through their number; launching is in it.", ""]
    head = ["rows x columns", "MLX BF16, kernels", "packed", "ratio"]
    head += ["MLX BF16, evaluated", "packed", "ratio"]
    table = [
        [f"{shape_of(row)}: {', '.join(row['models'])}", *cells(row), *cells(row["evaluated"])]
        for row in rows
    ]
    write_table(lines, head, table)
    explain_marks(lines, rows)
    sum_up(lines, "Kernels", rows, rows)
    sum_up(lines, "Evaluated", rows, [row["evaluated"] for row in rows])
    if KNOWN_ON in device:
        write_known(lines, rows)


def sum_up(lines: list[str], label: str, rows: list[dict], measured: list[dict]) -> None:
    lines += [f"{label}: geometric mean {statistics.geometric_mean(map(ratio_of, measured)):.2f}x."]
    large = [pair for pair in zip(rows, measured, strict=True) if size_of(pair[0]) >= LARGE]
    if large:
        row, worst = min(large, key=lambda pair: ratio_of(pair[1]))
        lines += [f"The worst of at least {LARGE >> 20} * 2^20 weights is {shape_of(row)} with"]
        lines += [f"{ratio_of(worst):.2f}x."]
    lines.append("")


def write_known(lines: list[str], rows: list[dict]) -> None:
    """Whether the evaluated BF16 column is what is known of this GPU."""
    texts, rows = [], [row for row in rows if (row["rows"], row["cols"]) in KNOWN]
    if not rows:
        return
    for row in rows:
        known = KNOWN[row["rows"], row["cols"]]
        found = 1e6 * statistics.median(row["evaluated"]["mlx"])
        if abs(found / known - 1) > TOLERATED:
            texts.append(f"{shape_of(row)} {found:.1f}, not {known}")
    verdict = "; ".join(texts) or f"within {100 * TOLERATED:.0f} %"
    lines += [f"BF16, evaluated, beside what it took on an {KNOWN_ON} before: {verdict}.", ""]


# ---- Experts, weights that are rebuilt


def write_moe(lines: list[str], part: dict) -> None:
    lines += ["## Experts", "", "Kernel times with 128 experts of 704 x 2816, 8 for each"]
    lines += [
        "token, chosen anew each time. Gate and up are two operations of MLX and one on packed"
    ]
    lines += ["weights.", ""]
    table = [[f"{row['what']}, tokens: {row['tokens']}", *cells(row)] for row in part["rows"]]
    write_table(lines, ["", "MLX BF16", "packed", "ratio"], table)
    explain_marks(lines, part["rows"])


def write_rebuild(lines: list[str], part: dict) -> None:
    lines += [
        "## Weights that are rebuilt",
        "",
        f"Kernel times with {shape_of(part)}; the weight is",
    ]
    lines += ["rebuilt, and the product MLX's own. Beside the rebuilding alone stands MLX negating"]
    lines += ["BF16.", ""]
    rows = [["rebuilding alone", *cells(part["alone"])]]
    rows += [[f"M = {row['m']}", *cells(row)] for row in part["products"]]
    write_table(lines, ["", "MLX BF16", "packed", "ratio"], rows)
    explain_marks(lines, part["products"])
    seconds = statistics.median(part["alone"]["r4"])
    lines += [f"Rebuilding writes {2e-9 * size_of(part) / seconds:.0f} GB/s of BF16.", ""]


# ---- Prompts


def sum_up_bands(rows: list[dict]) -> list[dict]:
    """Of each band that was measured: the geometric mean of ratios, and the row of the worst."""
    bands = []
    for least, most in BANDS:
        own = [row for row in rows if least <= row["m"] <= most]
        if own:
            mean = statistics.geometric_mean(map(ratio_of, own))
            bands.append({"ms": (least, most), "mean": mean, "worst": min(own, key=ratio_of)})
    return bands


def write_prompts(lines: list[str], part: dict) -> None:
    rows, experts = part["linear"], part["experts"]
    lines += ["## Several rows of x", "", "Kernel times of x [M, columns] with every shape, and of"]
    lines += ["many rows with some of them. 512 and 2,048 rows rebuild the weight first.", ""]
    table = []
    for band in sum_up_bands(rows):
        (least, most), worst = band["ms"], band["worst"]
        label = f"M = {least}" if least == most else f"M = {least} to {most}"
        text = f"{ratio_of(worst):.2f}x: {shape_of(worst)}, M = {worst['m']}"
        table.append([label, f"{band['mean']:.2f}x", text])
    write_table(lines, ["", "ratio, geometric mean", "the worst"], table)
    write_rows(lines, rows)
    explain_marks(lines, rows)
    lines += ["Experts as SwitchGLU multiplies many tokens, sorted by expert: gate, up and down"]
    lines += ["together.", ""]
    table = [[f"tokens: {row['tokens']}", *cells(row)] for row in experts]
    write_table(lines, ["", "MLX BF16", "packed", "ratio"], table)
    explain_marks(lines, experts)


def write_rows(lines: list[str], rows: list[dict]) -> None:
    """A line for each shape, a column for each M."""
    ms = sorted({row["m"] for row in rows})
    found = {(shape_of(row), row["m"]): row for row in rows}
    lines += ["How many times as fast packed weights are, and the microseconds of MLX's BF16:", ""]
    table = []
    for shape in dict.fromkeys(map(shape_of, rows)):
        table.append([shape])
        for m in ms:
            row = found.get((shape, m))
            table[-1].append(short_cell(row) if row else "")
    means = [
        f"{statistics.geometric_mean(ratio_of(row) for row in rows if row['m'] == m):.2f}x"
        for m in ms
    ]
    table.append(["geometric mean", *means])
    write_table(lines, ["rows x columns", *(f"M = {m}" for m in ms)], table)
    spread = max(middle_and_spread(row[side])[1] for row in rows for side in ("mlx", "r4"))
    lines += [
        f"The widest spread is {100 * spread:.0f} %; all of them are in the JSON file beside.",
        "",
    ]


def short_cell(row: dict) -> str:
    micros = 1e6 * statistics.median(row["mlx"])
    return f"{ratio_of(row):.2f}x ({micros:.{1 if micros < 100 else 0}f}){marks_of(row)}"
