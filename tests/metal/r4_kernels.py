"""Our kernels for Apple GPUs, as src/metal/metal_kernels.c lists them, in the emulator; and the
plain C definitions that they are compared with."""

import ctypes
import functools

import numpy as np
from compiling import CLANG, made_from, run
from emulator import Body, Source, compile_kernels
from sources import BUILD, ROOT

NARRAYS, NHEADERS, NPARAMETERS = 18, 6, 6
FEW, ANY = 1, 2
PLAIN = [
    *("metal/metal_kernels.c", "metal/metal_rules.c", "metal/metal_plan.c"),
    "cuda/r4_gpu_plain.c",
]
TYPES = {
    "uint8": ("uint8_t", np.uint8),
    "uint32": ("uint32_t", np.uint32),
    "int32": ("int32_t", np.int32),
    "int64": ("int64_t", np.int64),
    "bfloat16": ("bfloat", np.uint16),
    "float32": ("float", np.float32),
}
FILL = {np.uint8: 0xA7, np.uint16: 0x7FA7, np.uint32: 0xA7A7A7A7, np.float32: np.nan}


class Array(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("dtype", ctypes.c_char_p), ("size", ctypes.c_int))


class Entry(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("headers", ctypes.c_char_p * (NHEADERS + 1)),
        ("inputs", Array * (NARRAYS + 1)),
        ("outputs", Array * (NARRAYS + 1)),
        ("parameters", ctypes.c_char_p * (NPARAMETERS + 1)),
    )


@functools.cache
def plain():
    """The plain C files as a library."""
    sources = [ROOT / "src" / path for path in PLAIN]
    headers = sorted(p for room in ("metal", "cuda") for p in (ROOT / "src" / room).glob("*.h"))
    library = BUILD / f"plain-{made_from(*(p.read_text() for p in [*sources, *headers]))}.so"
    if not library.exists():
        BUILD.mkdir(parents=True, exist_ok=True)
        run(CLANG.removesuffix("++"), "-std=c11", "-O2", "-Wall", "-Werror", "-ffp-contract=off",
            "-fPIC", "-shared", "-I", ROOT / "src", *sources, "-lm", "-o", library)  # fmt: skip
    return ctypes.CDLL(str(library))


@functools.cache
def table():
    library = plain()
    n = ctypes.c_int.in_dll(library, "metal_nkernels").value
    return {e.name.decode(): e for e in (Entry * n).in_dll(library, "metal_kernels")}


def texts(values):
    return [v.decode() for v in values if v]


def arrays(listed):
    return [(a.name.decode(), a.dtype.decode(), a.size) for a in listed if a.name]


class Form:
    """A kernel with its template's arguments, and which of its inputs have under 8 elements."""

    def __init__(self, name, small=(), dtypes=(), **template):
        entry = table()[name]
        self.kernel = name
        self.template = template
        self.dtypes = dict(dtypes)
        self.headers = texts(entry.headers)
        self.inputs = [(n, self.dtypes.get(n, d), s == FEW or n in small)
                       for n, d, s in arrays(entry.inputs)]  # fmt: skip
        self.outputs = [(n, d) for n, d, _ in arrays(entry.outputs)]
        if list(template) != texts(entry.parameters):
            raise ValueError(f"{name} has the template {texts(entry.parameters)}")
        values = [*template.values(), *sorted(small), *self.dtypes.values()]
        self.name = "_".join([name, *(str(int(v)) if v in (True, False) else str(v)
                                      for v in values)])  # fmt: skip

    def body(self):
        inputs = [(n, TYPES[d][0], *(["constant"] if few else [])) for n, d, few in self.inputs]
        outputs = [(n, TYPES[d][0]) for n, d in self.outputs]
        path = f"src/metal/bodies/{self.kernel}.metal"
        return Body(self.name, path, inputs, outputs, self.template)

    def arguments(self, given, shapes):
        """Buffers for a launch: given inputs, and outputs of these shapes that hold nonsense."""
        buffers = []
        for name, dtype, few in self.inputs:
            a = np.ascontiguousarray(given[name], TYPES[dtype][1])
            if few != (a.size < 8):
                raise ValueError(f"{self.name}: {name} has {a.size} elements")
            buffers.append(a)
        for name, dtype in self.outputs:
            kind = TYPES[dtype][1]
            buffers.append(np.full(shapes[name], FILL[kind], kind))
        return buffers


def compile_forms(forms, fma=True, checked=False, counted=False, replace=None):
    """One library of forms that share their headers."""
    headers = forms[0].headers
    if any(f.headers != headers for f in forms):
        raise ValueError("forms of one library have the same headers")
    name = "_".join(["binade", headers[-1].split("/")[-1].split(".")[0]])
    source = Source(name, [f"src/{h}" for h in headers], [f.body() for f in forms],
                    replace=replace or {})  # fmt: skip
    return compile_kernels(source, fma, checked, counted)


class Kernels:
    """Launches of forms, compiled when first asked for."""

    def __init__(self, **how):
        self.how = how
        self.libraries = {}

    def launch(self, form, given, shapes, grid, threadgroup, **options):
        """The outputs by name, and the emulator's report."""
        if form.name not in self.libraries:
            self.libraries[form.name] = compile_forms([form], **self.how)
        buffers = form.arguments(given, shapes)
        report = self.libraries[form.name].launch(form.name, buffers, grid, threadgroup, **options)
        outputs = buffers[len(form.inputs) :]
        return {n: a for (n, _), a in zip(form.outputs, outputs, strict=True)}, report
