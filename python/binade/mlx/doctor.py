"""Checks every kernel on this machine and tells what there is: a report to paste where a problem is
told.

python -m binade.mlx.doctor [--json] [--quiet]

Exit status: 0 all bits are equal, 1 a check failed, 2 the command line is wrong.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from binade import __version__
from binade.mlx import _ops, facts, selfcheck, speeds, trust


class Report:
    """Text as it comes, or one JSON object at the end."""

    def __init__(self, as_json: bool, quiet: bool):
        self._as_json = as_json
        self._quiet = quiet
        self.content: dict[str, Any] = {"command": "doctor", "version": __version__}

    def title(self, text: str) -> None:
        self.line(f"\n{text}" if text else "")

    def line(self, text: str, *, urgent: bool = False) -> None:
        if not self._as_json and (urgent or not self._quiet):
            print(text, flush=True)

    def finish(self) -> None:
        if self._as_json:
            print(json.dumps(self.content), flush=True)


def main(args: Sequence[str] | None = None) -> int:
    options = _parse(args)
    try:
        return _examine(Report(options.json, options.quiet), options.command)
    except OSError as error:  # nothing else is left to raise it
        print(f"binade: cannot write the report: {error.strerror}", file=sys.stderr)
        # Or Python would try once more when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 2


def _examine(report: Report, command: str | None) -> int:
    _tell_facts(report, command)
    _ops.forbid_rebuild(False)  # rebuilding is one of the things that are checked
    results = _check(report)
    _keep(report, results)
    _tell_paths(report, results)
    _tell_plans(report)
    _tell_speeds(report)
    ok = _conclude(report, results)
    report.finish()
    return 0 if ok else 1


def _parse(args: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m binade.mlx.doctor",
        description="Checks every kernel on this machine against MLX's own operations.",
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("-q", "--quiet", action="store_true", help="print what failed only")
    parser.add_argument("--command", metavar="VERSION", help="of the command that asks")
    return parser.parse_args(args)


def _tell_facts(report: Report, command: str | None) -> None:
    report.line(f"Binade {__version__}, a report on this machine")
    for title, pairs in (
        ("devices", facts.of_devices()),
        ("versions", facts.of_versions(command)),
    ):
        report.content[title] = pairs
        report.title(title.capitalize())
        for name, text in pairs.items():
            report.line(f"  {name:<12} {text}")


# ---- Checks


def _check(report: Report) -> list[selfcheck.Result]:
    results = []
    for device in trust.devices():
        report.title(f"Checks on the {device.name.upper()}: the same bits as MLX's own operations")
        for result in selfcheck.iterate(device):
            served = " and ".join(result.kernels)
            line = f"  {result.what:<24} {served:<18} {result.ncases:>4} cases  "
            if result.failure is None:
                report.line(f"{line}ok")
            else:
                report.line(f"{line}FAILED", urgent=True)
                report.line(f"    {result.failure}", urgent=True)
            results.append(result)
    report.content["checks"] = [dataclasses.asdict(r) for r in results]
    return results


def _keep(report: Report, results: list[selfcheck.Result]) -> None:
    """What failed is not used again, in this process and in later ones, until it passes. Nothing
    is kept of a check that was told to take other kernels."""
    report.content["distrusted"] = {}
    is_kept = not os.environ.get("BINADE_GEMM_ROW")
    if not is_kept:
        report.line("  BINADE_GEMM_ROW is set: nothing of this is kept for later runs")
    for device in trust.devices():
        mine = [r for r in results if r.device == device.name]
        failed = _blame(mine)
        passed = {name for r in mine for name in r.kernels} - failed.keys()
        cleared = sorted(passed & trust.recorded(device).keys())
        for name in failed:
            _ops.distrust(name)
        try:
            if is_kept:
                trust.record(device, failed, passed)
        except OSError as error:
            if failed:
                report.line(
                    f"  this cannot be kept for later runs: {error.strerror or error}", urgent=True
                )
        if cleared and is_kept:
            report.line(f"  trusted again: {', '.join(cleared)}")
        if failed:
            report.content["distrusted"][device.name] = failed


def _blame(results: list[selfcheck.Result]) -> trust.Failures:
    """The kernels of failed checks, and the first of those. Rebuilding, which is what is left then,
    is not blamed."""
    return {
        name: f"{r.what}: {r.failure}"[:300].encode("ascii", "replace").decode()
        for r in reversed(results)
        if r.failure is not None
        for name in r.kernels
        if name != "rebuild"
    }


# ---- Paths


def _tell_paths(report: Report, results: list[selfcheck.Result]) -> None:
    report.content["paths"] = {}
    for device in trust.devices():
        report.title(f"What serves on the {device.name.upper()}")
        try:
            paths = _paths(device, results)
        except (RuntimeError, MemoryError) as error:  # such as a device that a kernel broke
            report.line(f"  not known: {_first_line(error)}")
            continue
        for what, (kernel, reason) in paths.items():
            report.line(f"  {what:<24} {kernel:<8} {reason}".rstrip())
        report.content["paths"][device.name] = {
            what: {"kernel": kernel, "reason": reason} for what, (kernel, reason) in paths.items()
        }


def _paths(device: mx.DeviceType, results: list[selfcheck.Result]) -> dict[str, tuple[str, str]]:
    with selfcheck.default_device(device):
        matrix = _ops.r4_make(mx.zeros((64, 128), mx.bfloat16))
        experts = _ops.r4_make(mx.zeros((4, 64, 128), mx.bfloat16))
    rows = next((r.kernels for r in results if (r.device, r.what) == (device.name, _ROWS)), [])
    return {
        "one row of x": _ops.path(matrix, 1),
        "several rows of x": _ops.path(matrix, 8),
        "one row, with a bias": _ops.path(matrix, 1, True),
        "several rows, bias": _ops.path(matrix, 8, True),
        "experts, few tokens": _ops.path(experts, 1),
        "experts, sorted": _ops.path(experts, 1, sorted_indices=True),
        _ROWS: (" and ".join(rows) or "none", "copied, nothing is added"),
    }


_ROWS = "embedding rows"


def _tell_plans(report: Report) -> None:
    """What cublasLt plans for some products of several rows, and whether its order is known."""
    if not facts.has_cuda():
        return
    report.title("Plans of cublasLt for M x N x K")
    report.content["plans"] = {}
    for m, n, k in _PLANNED:
        try:
            name, text = f"{m} x {n} x {k}", _ops.gemm_plan(m, n, k)
        except (RuntimeError, MemoryError) as error:
            report.line(f"  not known: {_first_line(error)}")
            return
        report.line(f"  {name:<24} {text}")
        report.content["plans"][name] = text


_PLANNED = [
    *[(m, n, k) for m in (2, 64, 256) for n, k in ((4096, 4096), (14336, 4096), (4096, 14336))],
    *[(16, 1024, 4096), (16, 300, 2112), (16, 2112, 2816)],
]


# ---- Speeds and the end


def _tell_speeds(report: Report) -> None:
    report.content["speeds"] = []
    for device in trust.devices():
        report.title(f"Speeds on the {device.name.upper()}: one row of x, medians, in microseconds")
        try:
            measured = speeds.measure(device)
        except (RuntimeError, MemoryError) as error:
            report.line(f"  not measured: {_first_line(error)}")
            continue
        for s in measured:
            gb_s = s.packed_nbytes / s.packed_us / 1e3, s.bf16_nbytes / s.bf16_us / 1e3
            report.line(
                f"  {s.shapes:<24} packed {s.packed_us:6.1f} ({gb_s[0]:.1f} GB/s)  "
                f"BF16 {s.bf16_us:6.1f} ({gb_s[1]:.1f} GB/s)  {s.ratio:.2f}x  "
                f"rebuild {s.rebuild_us:.1f}"
            )
            report.content["speeds"].append(dataclasses.asdict(s) | {"ratio": s.ratio})


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def _conclude(report: Report, results: list[selfcheck.Result]) -> bool:
    failed = [r for r in results if r.failure is not None]
    report.content["ok"] = not failed
    report.title("")
    if not failed:
        ncases = sum(r.ncases for r in results)
        report.line(f"All {len(results)} checks passed: {ncases} cases.")
        return True
    names = sorted(_blame(results))
    report.line(f"{len(failed)} of {len(results)} checks failed; please report this.", urgent=True)
    if names:
        report.line(
            f"{', '.join(names)}: not used from now on; weights are rebuilt in BF16 instead, or "
            "MLX does what fused launches would, which is exact but slower.",
            urgent=True,
        )
    if any("rebuild" in r.kernels and len(r.kernels) == 1 for r in failed):
        report.line(
            "Rebuilding failed too: do not trust packed models on this machine.", urgent=True
        )
    return False


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # ends by it, as the command does
    sys.exit(main())
