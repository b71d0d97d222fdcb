"""What a product costs a weight: operations, and bytes to and from memory. For comparing kernels:
`int_ops` has two operations for each BF16 that is widened, on a GPU they are fewer.

    PYTHONPATH=tests build/mlx/bin/python tests/metal/costs.py

prints the table of docs/METAL.md.
"""

import dataclasses
import math

THREADGROUP = 31


@dataclasses.dataclass
class Costs:
    """All of them for one weight. `loads` and `stores` are by number of the buffer, or its name."""

    float_ops: float
    int_ops: float
    runtime_calls: float
    matrix_steps: float
    loads: dict
    stores: dict
    threadgroup_loads: float
    threadgroup_stores: float


def costs(counted, checked, nweights, names=None):
    """From reports of the launches of one product, run with operations counted and run checked.
    names[i]: those of the buffers of launch i, in their order."""

    def total(name):
        return sum(getattr(report.counts, name) for report in counted) / nweights

    def nbytes(name):
        by_buffer = {}
        for launch, report in enumerate(checked):
            for i, n in enumerate(getattr(report.counts, name)):
                key = names[launch][i] if names and n and i != THREADGROUP else i
                if n:
                    by_buffer[key] = by_buffer.get(key, 0) + n / nweights
        return by_buffer

    loads, stores = nbytes("load_bytes"), nbytes("store_bytes")
    return Costs(
        *(total(name) for name in ("float_ops", "int_ops", "other_ops", "matrix")),
        threadgroup_loads=loads.pop(THREADGROUP, 0.0),
        threadgroup_stores=stores.pop(THREADGROUP, 0.0),
        loads=loads,
        stores=stores,
    )


# ---- The table

# Operations of an M4 Max for each byte of its memory: docs/METAL.md says from which numbers.
M4_MAX_OPS = 40 * 128 * 1.58e9 / 546e9

HEAD = (
    *("kernel", "whose", "W in memory", "W read", "beside it", "x, other", "written"),
    *("threadgroup", "integer", "float", "calls", "matrix", "busy"),
)


def numbers_of(measured):
    """Of one kernel, for one weight, in the order of the table."""
    found = costs(measured.counted, measured.checked, measured.nweights, measured.names)
    in_memory = measured.nbytes / measured.nweights
    written = sum(found.stores.values())
    shared = found.threadgroup_loads + found.threadgroup_stores
    ops = [
        found.int_ops,
        found.float_ops,
        found.runtime_calls,
        found.matrix_steps * 512,
    ]
    busy = sum(ops) / (in_memory + written) / M4_MAX_OPS
    return [in_memory, *measured.loaded(found.loads), written, shared, *ops, busy]


def as_stated(number):
    """Rounded up, so that the table never states less than was counted."""
    return f"{math.ceil(number * 1000 - 1e-6) / 1000:.3f}"


def rows_of(name, case):
    """A line for each that has such a kernel, all of which agree."""
    found = [case(whose) for whose in case.whose]
    if not case.is_loading and any((f.result != found[0].result).any() for f in found):
        raise AssertionError(f"{name}: results differ")
    rows = [[case.title(name), f.whose, *map(as_stated, numbers_of(f))] for f in found]
    for row in rows if case.is_loading else []:
        # The emulator takes dozens of steps for what lanes do together, above all here.
        for column in ("integer", "calls", "busy"):
            row[HEAD.index(column)] = ""
    return rows


def as_markdown(rows):
    lines = [HEAD, ["---", "---", *["---:"] * (len(HEAD) - 2)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main():
    from cost_cases import CASES

    print(as_markdown([row for name, case in CASES.items() for row in rows_of(name, case)]))


if __name__ == "__main__":
    main()
