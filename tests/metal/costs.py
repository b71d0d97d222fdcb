"""What a product costs a weight: operations, and bytes to and from memory. For comparing kernels:
`int_ops` has two operations for each BF16 that is widened, on a GPU they are fewer."""

import dataclasses

THREADGROUP = 31


@dataclasses.dataclass
class Costs:
    """All of them for one weight. `loads` and `stores` are by number of the buffer."""

    float_ops: float
    int_ops: float
    runtime_calls: float
    loads: dict
    stores: dict
    threadgroup_loads: float
    threadgroup_stores: float


def costs(counted, checked, nweights):
    """From reports of the launches of one product, run with operations counted and run checked."""

    def total(reports, name):
        return sum(getattr(report.counts, name) for report in reports) / nweights

    def nbytes(name):
        by_buffer = {}
        for report in checked:
            for i, n in enumerate(getattr(report.counts, name)):
                if n:
                    by_buffer[i] = by_buffer.get(i, 0) + n / nweights
        return by_buffer

    loads, stores = nbytes("load_bytes"), nbytes("store_bytes")
    return Costs(
        *(total(counted, name) for name in ("float_ops", "int_ops", "other_ops")),
        threadgroup_loads=loads.pop(THREADGROUP, 0.0),
        threadgroup_stores=stores.pop(THREADGROUP, 0.0),
        loads=loads,
        stores=stores,
    )
