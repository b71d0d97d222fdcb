"""Our kernels on Metal read and write no more bytes for a weight than docs/METAL.md states."""

import cost_cases
import costs
import pytest
from cost_cases import CASES, OURS
from sources import ROOT

BYTES = slice(costs.HEAD.index("W in memory"), costs.HEAD.index("threadgroup") + 1)
ONCE = ("matvec", "gather of experts", "few rows", "tiles of 16 rows", "tiles of 64 rows",
        "tiles of sorted experts", "rebuilding", "rows by number")  # fmt: skip
CHECKED = cost_cases.MODES[1:]


def stated():
    """The lines of the table that are ours: bytes by title."""
    lines = (ROOT / "docs/METAL.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if "|" in line]
    return {row[0]: [float(n) for n in row[BYTES]] for row in rows if row[1:2] == [OURS]}


def measured(name, **more):
    return costs.numbers_of(CASES[name](OURS, modes=CHECKED, **more))


def test_every_kernel_has_a_line():
    assert set(stated()) == {case.title(name) for name, case in CASES.items() if case.ours}


@pytest.mark.parametrize("name", CASES)
def test_no_more_than_is_stated(name):
    limits = stated()[CASES[name].title(name)]
    for what, n, limit in zip(costs.HEAD[BYTES], measured(name), limits, strict=False):
        assert n <= limit + 1e-6, f"{name}: {what}: {n}, not {limit}"


@pytest.mark.parametrize("name", ONCE)
def test_weights_are_read_once(name):
    """12 bits each."""
    assert measured(name)[costs.HEAD.index("W read") - 2] == 1.5


def test_reading_twice_is_told():
    line = "r4_sum_rows(part, part.row0, block * R4_NROWS, x, uint(sizes[0]), lane, sums);"
    twice = f"{line} float once = sums[0]; {line} sums[0] = min(sums[0], once);"
    found = measured("matvec", replace={"src/metal/r4_matvec.metal": [(line, twice)]})
    assert found[costs.HEAD.index("W read") - 2] > 1.8
