"""What the pages of the benchmarks share."""

import platform
import statistics
import subprocess
import sys
from pathlib import Path


def middle_and_spread(values: list[float]) -> tuple[float, float]:
    """The median, and half of (largest - smallest) as a part of it."""
    median = statistics.median(values)
    return median, (max(values) - min(values)) / 2 / median


def cpu_name() -> str:
    if sys.platform == "darwin":
        line = subprocess.run(["sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True)
        return line.stdout.decode().strip()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.lower().startswith(("model name", "cpu model")):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def write_table(lines: list[str], head: list[str], rows: list[list[str]]) -> None:
    lines.append("| " + " | ".join(head) + " |")
    lines.append("|---|" + "---:|" * (len(head) - 1))
    lines.extend("| " + " | ".join(row) + " |" for row in rows)
    lines.append("")
