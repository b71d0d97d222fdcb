"""Compiles the emulator, and kernels for it."""

import hashlib
import os
import pathlib
import platform
import shutil
import subprocess

import counting
import prepass
import wheel
from sources import BUILD, Body

HERE = pathlib.Path(__file__).resolve().parent
EMULATOR = HERE / "emulator"
FIBERS = HERE.parent / "emulator"
CLANG = os.environ.get("METAL_CLANG", "clang++")

CPU = ["-mavx2", "-mfma", "-mf16c"] if platform.machine() == "x86_64" else []
COMMON = [
    "-O2",
    "-g1",
    "-fPIC",
    "-fno-strict-aliasing",
    "-fno-math-errno",
    "-Wall",
    "-Werror",
    *CPU,
]
# METAL_SANITIZE=1 adds clang's address and undefined sanitizers to the emulator and to our kernels
# that are not checked. Python must then begin with the sanitizers' library.
SANITIZED = os.environ.get("METAL_SANITIZE") == "1"
SANITIZERS = ["-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-shared-libsan"]
# What is unusual but right in Metal.
QUIET = ["unknown-pragmas", "unused-variable", "unused-but-set-variable", "unused-parameter",
         "duplicate-decl-specifier", "unused-function", "unused-const-variable", "pass-failed",
         "unused-local-typedef", "missing-braces", "pragma-once-outside-header"]  # fmt: skip
KERNELS = [*COMMON, "-std=c++17", *(f"-Wno-{w}" for w in QUIET), "-fvisibility=hidden"]
# Operations one by one, as each thread of a GPU makes them; rounding is a call.
COUNTED = ["-fno-vectorize", "-fno-slp-vectorize", "-DEMULATED_ROUND=noinline", "-g0"]
# Loads and stores as they stand in the source, each with a call before it.
CHECKED = [
    *("-fsanitize=thread", "-fno-sanitize-link-runtime", "-fno-vectorize", "-fno-slp-vectorize"),
    *("-mllvm", "-tsan-instrument-func-entry-exit=0", "-Wl,--wrap=memcpy,--wrap=memset"),
    *("-mllvm", "-tsan-instrument-read-before-write=1", "-Wl,--wrap=memmove"),
]


def run(*command):
    # Compilers run without the sanitizers that this process may run under.
    environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    command = [str(c) for c in command]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


def sanitizer_library():
    """What Python must begin with under METAL_SANITIZE."""
    machine = platform.machine()
    for name in (f"libclang_rt.asan-{machine}.so", "libclang_rt.asan.so"):
        command = [CLANG, f"-print-file-name={name}"]
        found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        if os.path.isabs(found) and os.path.exists(found):
            return found
    raise RuntimeError(f"{CLANG} has no shared library of its sanitizers")


def made_from(*parts):
    """A name for what is made from these texts."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(str(part).encode() + b"\0")
    return digest.hexdigest()[:16]


def emulator_text():
    folders = (EMULATOR, FIBERS)
    files = [p for folder in folders for p in sorted(folder.rglob("*")) if p.is_file()]
    files += [HERE / "prepass.py", HERE / "counting.py"]
    return "".join(p.read_text() for p in files)


def build_runtime():
    """The emulator itself, as a shared library."""
    name = made_from(emulator_text(), COMMON, CLANG, SANITIZED)
    library = BUILD / f"runtime-{name}.so"
    if not library.exists():
        BUILD.mkdir(parents=True, exist_ok=True)
        sources = sorted([*EMULATOR.glob("*.cpp"), *FIBERS.glob("*.cpp")])
        scratch = library.with_suffix(f".{os.getpid()}")
        flags = [*COMMON, "-std=c++20", "-ffp-contract=off", "-shared", f"-I{FIBERS}"]
        run(CLANG, *flags, *(SANITIZERS if SANITIZED else []), *sources, "-o", scratch)
        scratch.rename(library)
    return library


def prepare_headers(folder, out):
    """A copy of the headers below a folder that C++ can read."""
    for path in folder.rglob("*.h"):
        target = out / path.relative_to(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        prepared = prepass.prepare(path.read_text(), path.relative_to(folder))
        target.write_text(prepared.text)


def headers():
    """MLX's headers as C++ can read them."""
    folder = BUILD / f"headers-{made_from(emulator_text(), wheel.NAME)}"
    if not folder.exists():
        wheel.fetch()
        scratch = folder.with_suffix(f".{os.getpid()}")
        prepare_headers(wheel.WHEEL, scratch)
        # Another process may have been first.
        if folder.exists():
            shutil.rmtree(scratch)
        else:
            scratch.rename(folder)
    return folder


def parameter_table(function, parameters):
    kinds = [prepass.parameter_kind(function, p) for p in prepass.split(parameters)]
    rows = ", ".join(f"{{emulated::{what}, {index}}}" for what, index in kinds)
    return f"static constexpr emulated::Parameter {function}_parameters[] = {{{rows}}};\n"


def glue(parts, entries):
    """The table of a library's kernels, in C++."""
    known = {}
    for part in parts:
        known.update(part.parameters)
    functions = sorted({call.split("<")[0] for _, call in entries})
    text = "".join(parameter_table(f, known[f]) for f in functions)
    rows = [
        f'emulated::describe<{call}, {call.split("<")[0]}_parameters>("{name}", {call})'
        for name, call in entries
    ]
    constants = [f"{{{i}, sizeof {n}, &{n}}}" for part in parts for i, n in part.constants]
    rows, constants_text = ", ".join(rows), ", ".join(constants)
    text += f"static const emulator::Kernel emulated_kernels[] = {{{rows}}};\n"
    if constants:
        text += f"static const emulator::Constant emulated_constants[] = {{{constants_text}}};\n"
    return text + (
        'extern "C" __attribute__((visibility("default"))) const emulator::Library '
        f"emulated_library = {{{len(entries)}, {len(constants)}, emulated_kernels, "
        f"{'emulated_constants' if constants else 'nullptr'}}};\n"
    )


def compose(source):
    """One C++ file: the sources after the pass, then the table."""
    parts = [prepass.prepare(source.read(path), path) for path in source.files]
    entries = []
    for kernel in source.kernels:
        if isinstance(kernel, Body):
            parts.append(prepass.prepare(kernel.as_source(), kernel.path))
        entries.append((kernel.name, kernel.function))
    entries += [instance for part in parts for instance in part.instances]
    body = "\n".join(part.text for part in parts)
    return f'#include "emulated_kernel.h"\n{source.prelude}\n{body}\n{glue(parts, entries)}'


def compile_source(source, fma=True, checked=False, counted=False):
    """A shared library of the source's kernels; `checked` or `counted`, not both."""
    text = compose(source)
    flags = [*KERNELS, f"-ffp-contract={'on' if fma else 'off'}", f"-DEMULATED_FUSE={int(fma)}"]
    if checked:
        flags += CHECKED
    elif counted:
        flags += COUNTED
    elif SANITIZED and source.ours:
        flags += SANITIZERS
    runtime = build_runtime()
    name = f"{source.name}-{made_from(text, flags, runtime, wheel.NAME, CLANG)}"
    library = BUILD / f"{name}.so"
    if library.exists():
        return library
    scratch = library.with_suffix(f".{os.getpid()}")
    unit = scratch.with_suffix(f"{scratch.suffix}.cpp")
    unit.write_text(text)
    include = [f"-I{EMULATOR / 'include'}", f"-I{headers()}"]
    if counted:
        code = unit.with_suffix(".ll")
        run(CLANG, *flags, *include, "-S", "-emit-llvm", "-x", "c++", unit, "-o", code)
        code.write_text(counting.instrument(code.read_text()))
        run(CLANG, "-O1", "-fPIC", *CPU, "-shared", code, runtime, "-o", scratch)
        code.unlink()
    else:
        run(
            CLANG,
            *flags,
            "-shared",
            *include,
            "-x",
            "c++",
            unit,
            "-x",
            "none",
            runtime,
            "-o",
            scratch,
        )
    unit.unlink()
    scratch.rename(library)
    return library
