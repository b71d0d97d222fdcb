"""The texts of our Metal kernels: every file is used, nothing is for the emulator alone, and
address spaces match, for which a compiler for OpenCL is asked, as its types have them too."""

import re
import subprocess

import pytest
from compiling import CLANG
from r4_kernels import ANY, FEW, TYPES, Form, arrays, table, texts
from sources import BUILD, ROOT

METAL = ROOT / "src/metal"
OPENCL = ROOT / "tests/metal/metal_as_opencl.h"
LARGEST = {"BIAS": True, "BM": 64, "BN": 64, "WM": 2, "WN": 2, "BK": 32, "NV": 5, "L": 16}
OTHER = {"BIAS": False, "BM": 32, "BN": 64, "WM": 2, "WN": 2, "BK": 16, "NV": 2, "L": 32}
SMALLEST = {"BIAS": False, "BM": 16, "BN": 32, "WM": 1, "WN": 2, "BK": 16, "NV": 2, "L": 32}
ATTRIBUTES = {
    "uint3": ("thread_position_in_grid", "threadgroup_position_in_grid", "threadgroups_per_grid"),
    "uint": (
        *("thread_index_in_threadgroup", "thread_index_in_simdgroup"),
        *("simdgroup_index_in_threadgroup", "simdgroups_per_threadgroup"),
    ),
}
THREADGROUP_NBYTES = 32768


def body_of(name):
    return (METAL / "bodies" / f"{name}.metal").read_text()


def without_comments(text):
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.S)


def test_every_file_is_used():
    headers = {h for e in table().values() for h in texts(e.headers) if h.startswith("metal/")}
    assert {f"metal/{p.name}" for p in METAL.glob("*.metal")} == headers
    assert {p.stem for p in (METAL / "bodies").iterdir()} == set(table())


@pytest.mark.parametrize("name", table())
def test_a_body_uses_what_it_is_given(name):
    entry, body = table()[name], without_comments(body_of(name))
    listed = [n for n, _, _ in (*arrays(entry.inputs), *arrays(entry.outputs))]
    for word in (*listed, *texts(entry.parameters)):
        assert re.search(rf"\b{word}\b", body), f"{name} does not use {word}"
        # MLX adds arguments for these.
        assert not re.search(rf"{word}_(shape|strides|ndim)", body)
    known = {a for names in ATTRIBUTES.values() for a in names}
    asked = set(re.findall(r"\b\w+_(?:in|per)_(?:grid|threadgroup|simdgroup)\b", body))
    assert asked <= known, f"{name} asks for {asked - known}"


def test_nothing_is_for_the_emulator_alone():
    for path in METAL.rglob("*.metal"):
        text = without_comments(path.read_text())
        assert not re.search(r"emulat|^\s*#\s*(include|if|ifdef|ifndef)", text, re.I | re.M), path
        assert not re.search(r"fast::|fast_math|METAL fp|precise::", text), path


# What a pointer or reference may point to here.
POINTED = (
    r"(?:unsigned|char|uint\d?|ushort|uchar|float\d?|bfloat|int|long|ulong"
    r"|simdgroup_float8x8|r4_\w+)"
)
SPACES = ("device", "constant", "threadgroup", "thread")


def test_every_pointer_names_its_address_space():
    """Metal has no other; OpenCL would take one without."""
    pointer = re.compile(rf"((?:\w+ )*){POINTED}(?:<[^<>;]*>)? ?[*&]+ ?(?:\w|\))")
    found = 0
    for path in [*METAL.rglob("*.metal"), ROOT / "src/cuda/r4_gpu_layout.h"]:
        for match in pointer.finditer(without_comments(path.read_text())):
            found += 1
            assert set(match[1].split()) & set(SPACES), f"{path.name}: {match[0]}"
    assert found > 100


def spelled_for_opencl(text):
    """A vector of several values is a cast there."""
    return re.sub(r"(?<![\w<])((?:uint|float)[234])\(", r"(\1)(", text)


def as_opencl(form):
    parts = [OPENCL.read_text()]
    parts += [f'# 1 "src/{h}"\n{(ROOT / "src" / h).read_text()}' for h in form.headers]
    spaces = [(n, d, "__constant" if few else "__global") for n, d, few in form.inputs]
    parameters = [f"{space} const {TYPES[d][0]} *{n}" for n, d, space in spaces]
    parameters += [f"__global {TYPES[d][0]} *{n}" for n, d in form.outputs]
    given = [f"constexpr {type(v).__name__} {n} = {int(v)};" for n, v in form.template.items()]
    body = body_of(form.kernel)
    for kind, names in ATTRIBUTES.items():
        given += [f"{kind} {n};" for n in names if re.search(rf"\b{n}\b", body)]
    parts.append(f"kernel void f({', '.join(parameters)}) {{ {' '.join(given)}")
    parts.append(f'# 1 "src/metal/bodies/{form.kernel}.metal"\n{body}\n}}\n')
    return spelled_for_opencl("\n".join(parts))


def check_spaces(form, change=("", "")):
    text = as_opencl(form)
    assert change[0] in text
    path = BUILD / f"{form.name}.clcpp"
    BUILD.mkdir(parents=True, exist_ok=True)
    path.write_text(text.replace(*change) if change[0] else text)
    done = subprocess.run(
        [CLANG, "-x", "cl", "-cl-std=clc++2021", "-target", "spir64", "-fsyntax-only",
         "-Xclang", "-finclude-default-header", "-Wno-unused-value", path],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    path.unlink()
    return done.returncode, done.stderr


def forms_of(name):
    """With all that may be small in either place."""
    entry = table()[name]
    listed = arrays(entry.inputs)
    dtypes = {"ids": "int64"} if any(n == "ids" for n, _, _ in listed) else {}
    template = {p: LARGEST[p] for p in texts(entry.parameters)}
    yield Form(name, (), dtypes, **template)
    small = tuple(n for n, _, size in listed if size == ANY)
    if small:
        yield Form(name, small, dtypes, **template)


@pytest.mark.parametrize("name", table())
def test_address_spaces(name):
    for form in forms_of(name):
        code, message = check_spaces(form)
        assert code == 0, message


def test_a_wrong_address_space_is_told():
    form = next(forms_of("r4_matvec_1"))
    for change in (
        ("const device uint *slices,", "const threadgroup uint *slices,"),
        ("const constant int *facts", "const device int *facts"),
        ("thread float *sums", "device float *sums"),
    ):
        code, message = check_spaces(form, change)
        assert code != 0
        assert "address space" in message or "no matching function" in message


@pytest.mark.parametrize("parameters", [LARGEST, OTHER, SMALLEST])
def test_threadgroup_memory_is_within_its_limit(parameters):
    for name in table():
        nbytes = 0
        for kind, extent in re.findall(r"^threadgroup (\w+) \w+\[(.*)\];", body_of(name), re.M):
            for word, value in {
                **parameters, "R4_TILE_LD": 72, "R4_LONG_NSUMS": 32, "R4_SCAN_NTHREADS": 1024,
                "R4_LOAD_NSIMDS": 8, "R4_SLICE_NCOLS": 128,
            }.items():  # fmt: skip
                extent = re.sub(rf"\b{word}\b", str(value), extent)
            nbytes += eval(extent) * {"uint2": 8, "uchar": 1, "uint": 4, "float": 4}[kind]
        assert nbytes <= THREADGROUP_NBYTES, name


def test_sizes_are_always_few():
    for entry in table().values():
        for name, _, size in arrays(entry.inputs):
            assert (size == FEW) == (name == "sizes" or name.startswith("facts_"))
