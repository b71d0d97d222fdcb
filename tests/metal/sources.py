"""What is compiled: kernels of .metal files, and bodies for MLX's metal_kernel with the signature
that MLX would generate."""

import dataclasses
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "metal"

UINT3 = (
    "thread_position_in_grid",
    "thread_position_in_threadgroup",
    "threadgroup_position_in_grid",
    "threads_per_grid",
    "threadgroups_per_grid",
    "threads_per_threadgroup",
)
UINT = (
    "thread_index_in_threadgroup",
    "thread_index_in_simdgroup",
    "simdgroup_index_in_threadgroup",
    "simdgroups_per_threadgroup",
    "threads_per_simdgroup",
)


@dataclasses.dataclass
class Kernel:
    """A kernel function: its name in launches, and the function with template arguments."""

    name: str
    function: str


@dataclasses.dataclass
class Body:
    """What MLX's metal_kernel is given as source, for one set of template arguments.

    Inputs are (name, type) or (name, type, "constant") where MLX would put an input there, that is
    under 8 elements, or (name, type, "scalar") for one without dimensions; outputs (name, type).
    """

    name: str
    path: str
    inputs: list
    outputs: list
    template: dict = dataclasses.field(default_factory=dict)

    @property
    def function(self):
        arguments = ", ".join(cpp_value(v) for v in self.template.values())
        return f"body_{self.name}<{arguments}>" if self.template else f"body_{self.name}"

    def signature(self, text):
        parameters = []

        def add(kind, name):
            parameters.append(f"{kind}{name} [[buffer({len(parameters)})]]")

        for name, kind, *where in self.inputs:
            space = "constant" if where else "device"
            add(f"const {space} {kind}{'&' if where == ['scalar'] else '*'} ", name)
            if where != ["scalar"]:
                for suffix, extra in (
                    ("shape", "const constant int* "),
                    ("strides", "const constant int64_t* "),
                    ("ndim", "const constant int& "),
                ):
                    if f"{name}_{suffix}" in text:
                        add(extra, f"{name}_{suffix}")
        for name, kind in self.outputs:
            add(f"device {kind}* ", name)
        for kind, names in (("uint3", UINT3), ("uint", UINT)):
            for name in names:
                if re.search(rf"\b{name}\b", text):
                    parameters.append(f"{kind} {name} [[{name}]]")
        template = ", ".join(f"{cpp_kind(v)} {n}" for n, v in self.template.items())
        head = f"template <{template}> " if template else ""
        return f"{head}[[kernel]] void body_{self.name}({', '.join(parameters)}) {{"

    def as_source(self):
        text = (ROOT / self.path).read_text()
        return f'{self.signature(text)}\n# 1 "{self.path}"\n{text}\n}}\n'


def cpp_kind(value):
    if isinstance(value, bool):
        return "bool"
    return "int" if isinstance(value, int) else "typename"


def cpp_value(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


@dataclasses.dataclass
class Source:
    """A library of kernels: files in this order, then kernels out of them and bodies.

    `replace` changes text of the files named, for tests that must fail; `prelude` comes first.
    MLX's headers can be included. What is not `ours` is not worth a sanitizer's time.
    """

    name: str
    files: list
    kernels: list
    replace: dict = dataclasses.field(default_factory=dict)
    prelude: str = "using namespace metal;"
    ours: bool = True

    def read(self, path):
        text = pathlib.Path(ROOT / path).read_text()
        for old, new in self.replace.get(str(path), []):
            if old not in text:
                raise ValueError(f"{path} has no longer what a test changes: {old}")
            text = text.replace(old, new)
        return text
