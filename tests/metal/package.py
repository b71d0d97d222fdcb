"""The kernels for Apple GPUs of the published package binade 0.1.1, on the emulator. Its own Python
makes their texts, arrays and launches; here is only what stands in MLX's place when it calls
metal_kernel. The package is where `./run test` and `./run bench` install it, or beside
ORACLE_PYTHON.

Weights are uint16 patterns, as in products.py.
"""

import contextlib
import functools
import importlib.util
import os
import pathlib
import re
import sys
import types

import mlx.core as mx
import numpy as np
from compiling import made_from
from emulator import Body, Source, compile_kernels
from mlx_operands import bits_of, to_mlx
from sources import BUILD, ROOT

NAME = "published_binade"  # ours has the name of the package
TYPES = {
    mx.uint8: "uint8_t",
    mx.uint16: "uint16_t",
    mx.uint32: "uint32_t",
    mx.bfloat16: "bfloat",
}
# Members of its two packed vectors, which the emulator's have by number only.
MEMBER = re.compile(r"\b([cr]v)\.([xyzw])\b")


def find_package():
    python = pathlib.Path(os.environ.get("ORACLE_PYTHON", ROOT / "build/oracle/bin/python"))
    found = sorted(python.parent.parent.glob("lib/python3*/site-packages/binade"))
    if not found:
        raise RuntimeError(f"the published package binade 0.1.1 is not installed beside {python}")
    return found[0]


@functools.cache
def module(name):
    """A module of the package, whose metal_kernel is the emulator's."""
    if NAME not in sys.modules:
        folder = find_package()
        spec = importlib.util.spec_from_file_location(
            NAME, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        sys.modules[NAME] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[NAME])
    found = importlib.import_module(f"{NAME}.{name}")
    found.mx = types.SimpleNamespace(
        **{**vars(mx), "fast": types.SimpleNamespace(metal_kernel=PackageKernel)}
    )
    return found


def as_numpy(a):
    return bits_of(a) if a.dtype == mx.bfloat16 else np.array(a)


class PackageKernel:
    """What metal_kernel returns."""

    def __init__(self, name, input_names, output_names, source):
        self.name, self.inputs, self.outputs = name, input_names, output_names
        self.path = BUILD / "package" / f"{name}-{made_from(source)}.metal"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(MEMBER.sub(lambda m: f"{m[1]}[{'xyzw'.index(m[2])}]", source))

    def body(self, inputs, dtypes, template):
        small = [a.size < 8 for a in inputs]
        how = made_from(small, template)
        listed = [(n, TYPES[a.dtype], *(["constant"] if few else []))
                  for n, a, few in zip(self.inputs, inputs, small, strict=True)]  # fmt: skip
        outputs = [(n, TYPES[d]) for n, d in zip(self.outputs, dtypes, strict=True)]
        return Body(f"{self.name}_{how}", str(self.path), listed, outputs, dict(template))

    def __call__(self, inputs, grid, threadgroup, output_shapes, output_dtypes, template=()):
        run = Package.running
        body = self.body(inputs, output_dtypes, template)
        prelude = "using namespace metal; typedef bfloat bfloat16_t;"
        source = Source(f"package_{self.name}", [], [body], prelude=prelude, ours=False)
        library = compile_kernels(source, **run.how)
        made = [np.zeros(shape, np.uint16 if d == mx.bfloat16 else as_numpy(mx.zeros(1, d)).dtype)
                for shape, d in zip(output_shapes, output_dtypes, strict=True)]  # fmt: skip
        report = library.launch(
            body.name, [*map(as_numpy, inputs), *made], grid, threadgroup, **run.options
        )
        run.launches.append((report, [*self.inputs, *self.outputs]))
        return [to_mlx(a) if d == mx.bfloat16 else mx.array(a)
                for a, d in zip(made, output_dtypes, strict=True)]  # fmt: skip


class Package:
    """Products by the package, and its launches: reports with the names of buffers."""

    running = None

    def __init__(self, how, **options):
        self.how, self.options = how, options
        self.launches = []

    @contextlib.contextmanager
    def run(self):
        Package.running = self
        yield
        Package.running = None

    def load(self, streams):
        """Streams of format 2 (r4_streams.py) to the package's R4, by its kernel and its Python."""
        module("mlx.rice_kernel")
        parts = {"raw": "raw", "table": "table", "meta": "meta", "bits": "bits",
                 "roff": "row_starts"}  # fmt: skip
        weight = {theirs: mx.array(getattr(streams, name)) for theirs, name in parts.items()}
        with self.run():
            made = module("mlx.r4").transcode(types.SimpleNamespace(weight=weight))
        linear = module("mlx.r4")._R4()
        linear._init_r4(made)
        return linear

    def call(self, method, *arguments, **more):
        module("mlx.kernel")
        with self.run():
            made = method(*arguments, **more)
        made = made if isinstance(made, tuple) else (made,)
        return np.hstack([bits_of(a) for a in made])


def nbytes(linear):
    """Of R4 in memory."""
    return sum(a.nbytes for a in linear._a.values() if isinstance(a, mx.array))
