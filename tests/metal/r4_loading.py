"""Loading on Metal, launch by launch, on the emulator: streams of either format, or BF16, to R4."""

import ctypes
import dataclasses

import numpy as np
from r4_kernels import plain
from r4_products import Ours, Plan, Weight, nslices

U32 = np.uint32
KEPT = 16


class Loading(Ours):
    def load(self, kernel, nrows, given, sizes, shapes):
        plan = Plan()
        plain().metal_plan_load(kernel.encode(), nrows, ctypes.byref(plan))
        plan.kernel = kernel.encode()
        return self.run(plan, {**given, "sizes": np.array(sizes, np.int32)}, shapes)

    def scan(self, values):
        plan = Plan()
        plain().metal_plan_scan(len(values), ctypes.byref(plan))
        return self.run(plan, {"values": values}, {"starts": len(values) + 1})["starts"]

    def two_passes(self, name, given, sizes, nrows, k, base):
        """The weight, and whether a stream is damaged."""
        shapes = {"slices": (nrows, nslices(k) * 48), "kept": (nrows, KEPT)}
        shapes |= dict.fromkeys(("counts", "masks", "faults"), nrows)
        made = self.load(f"r4_from_{name}_1", nrows, given, sizes, shapes)
        starts = self.scan(made["counts"])
        given = {**given, "starts": starts, "masks": made["masks"], "kept": made["kept"]}
        shapes = {"rows": (nrows + 1, 2), "escapes": max(8, int(starts[-1]))}
        placed = self.load(f"r4_from_{name}_2", nrows, given, sizes, shapes)
        escapes = placed["escapes"][: starts[-1]]
        weight = Weight(made["slices"], placed["rows"], escapes, base, 1, nrows, k, 0, nrows)
        return weight, bool(made["faults"].any())

    def from_rice(self, streams, base):
        (nrows, k), given = streams.raw.shape, dataclasses.asdict(streams)
        sizes = [k, nrows, len(streams.bits), base]
        return self.two_passes("rice", given, sizes, nrows, k, base)

    def from_fixed(self, streams, base):
        (nrows, k), given = streams.raw.shape, dataclasses.asdict(streams)
        nwords = len(streams.idx)
        shapes = {"widths": nrows, "faults": nrows}
        measured = self.load("r4_measure_fixed", nrows, given, [k, nrows], shapes)
        given["code_starts"] = self.scan(measured["widths"])
        shapes = {"counts": nrows, "faults": nrows}
        counted = self.load("r4_count_fixed", nrows, given, [k, nrows, nwords], shapes)
        given["esc_starts"] = self.scan(counted["counts"])
        sizes = [k, nrows, nwords, len(streams.esc), base]
        weight, fault = self.two_passes("fixed", given, sizes, nrows, k, base)
        return weight, bool(fault or measured["faults"].any() or counted["faults"].any())

    def from_bf16(self, w, base):
        nrows, k = w.shape
        return self.two_passes("bf16", {"weights": w}, [k, nrows, base], nrows, k, base)
