"""MLX's kernels as Apple's compiler left them: the bitcode (AIR) in the wheel's metallib, compiled
for this machine and run by the same emulator.

The other route, sources under emulated headers, shows what the sources say; this one, what Apple's
compiler made of them: which products and sums it fuses, in which order it adds. What remains
unseen is the last step, from AIR to a GPU.
"""

import functools
import os
import pathlib
import re
import shutil

import metallib
import oracle
import prepass
from compiling import CLANG, COMMON, EMULATOR, build_runtime, made_from, run
from emulator import Library
from sources import BUILD

MATRIX_STEP = "air.simdgroup_matrix_8x8_multiply_accumulate.v64f32.v64f32.v64f32.v64f32"
CALLS = {
    "air.wg.barrier": "emulated_air_wg_barrier",
    "air.simdgroup.barrier": "emulated_air_simdgroup_barrier",
    "air.simd_shuffle_down.f32": "emulated_air_shuffle_down",
    "air.min.s.i32": "llvm.smin.i32",
    "air.dot.v4f32": "emulated.dot4",
    "air.convert.f.v4f32.f.v4bf16": "emulated.widen4",
    "llvm.fmuladd.bf16": "emulated.fmuladd",
    MATRIX_STEP: "emulated.step",
}


# Of 16 or later: older ones cannot read the bitcode.
NEW_CLANG = os.environ.get("METAL_NEW_CLANG", "clang-16")

# Hints to Apple's compiler, which change no value, and declarations of what is defined here.
DROPPED = [
    (r"(?:tail )?call i1 @air\.is_uniform\.\w+\(\w+ [^)]*\)(?: #\d+)?", "or i1 true, true"),
    (r"(?:tail )?call i8 @air\.normalize_\w+\.i8\(i8 (\S+)\)(?: #\d+)?", r"or i8 \1, 0"),
    (r"^declare .*@air\.(?:is_uniform|normalize|dot|convert|simdgroup_matrix).*\n", ""),
    (r"^declare .*@llvm\.fmuladd.*\n", ""),
]


# ---- Rewriting


def rewrite_bfloat(text):
    """Patterns of 16 bits in place of bfloat, which this machine's compiler may not keep as is."""
    for pattern, replacement in (
        (r"\bfptrunc float (\S+) to bfloat", r"call i16 @emulated.round(float \1)"),
        (r"\bfpext bfloat (\S+) to float", r"call float @emulated.widen(i16 \1)"),
        (r"\bfmul bfloat (\S+), (\S+)", r"call i16 @emulated.fmul(i16 \1, i16 \2)"),
    ):
        text = re.sub(pattern, replacement, text)
    left = re.search(r"\bf\w+ (<\d x )?bfloat.*", text)
    if left:
        raise ValueError(f"arithmetic of bfloat that is not emulated: {left[0]}")
    text = re.sub(r"\b0xR([0-9A-F]{4})\b", lambda m: str(int(m[1], 16)), text)
    return re.sub(r"\bbfloat\b(?!\")", "i16", text)


class Module:
    """One kernel's IR, rewritten for this machine. Its symbols begin with `prefix`."""

    def __init__(self, text, name, prefix):
        self.name, self.prefix = name, prefix
        self.constants, self.shared, self.renamed = [], [], {}
        self.entry = f"{prefix}.kernel"
        self.init = ""
        self.text = self.rewrite(text)

    def rewrite(self, text):
        text = re.sub(r"^@llvm\.(global_ctors|compiler\.used) = .*\n", "", text, flags=re.M)
        text = re.sub(r"^@(\S+) = (.*)$", self.rewrite_global, text, flags=re.M)
        renamed = {**self.renamed, self.name: self.entry}
        text = re.sub(r"@([\w.]+)", lambda m: "@" + renamed.get(m[1], m[1]), text)
        text = re.sub(r" addrspace\(\d\)", "", text)
        text = re.sub(r"\bp\d\.p\d\.i64\b", "p0.p0.i64", text)
        found = re.search(r"define internal void @(\S*_GLOBAL__sub_I_[^(\s]*)\(\).*", text)
        if found:
            self.init = f"{self.prefix}.init"
            line = f"define hidden void @{self.init}() {{"
            text = text.replace(found[0], line)
        text = rewrite_bfloat(text)
        for pattern, replacement in DROPPED:
            text = re.sub(pattern, replacement, text, flags=re.M)
        for old, new in CALLS.items():
            text = text.replace(f"@{old}(", f"@{new}(")
        self.parameters = self.find_parameters(text)
        left = set(re.findall(r"@(air\.[\w.]+)", text))
        if left:
            raise ValueError(f"{self.name} calls what is not emulated: {sorted(left)}")
        return text + (EMULATOR / "air_support.ll").read_text()

    def rewrite_global(self, match):
        name, rest = match.groups()
        if name.startswith("llvm."):
            return match[0]
        constant = re.search(r"\.MTL_FC_INIT_(\d+)_b$", name)
        if constant:
            name = self.rename(name)
            self.constants.append((int(constant[1]), name))
            return f"@{name} = hidden global i8 0, align 1"
        if "addrspace(3)" in rest:
            kind = re.search(r"global (.*?) undef", rest)[1]
            name = self.rename(name)
            size = f"{name}.size"
            self.shared.append((name, size))
            # Not internal: barriers, which are ordinary calls here, may change it.
            return (f"@{name} = hidden global {kind} zeroinitializer, align 16\n"
                    f"@{size} = hidden constant i64 ptrtoint (ptr getelementptr ({kind}, ptr null, "
                    "i32 1) to i64), align 8")  # fmt: skip
        return match[0]

    def rename(self, name):
        """A name that no other kernel's module has."""
        return self.renamed.setdefault(name, f"{self.prefix}.global{len(self.renamed)}")

    def find_parameters(self, text):
        inside = re.search(rf"define weak_odr void @{self.entry}\((.*)\)[^)]*\{{$", text, re.M)[1]
        return [p.strip() for p in prepass.split(inside)]


def glue_kernel(number, module, kinds):
    """C++ that calls one kernel, and its row of the table. `kinds`: (what, index, is written)."""
    if len(kinds) != len(module.parameters):
        raise ValueError(f"{module.name} has other parameters than its source")
    types, values, buffers, written = [], [], 0, 0
    for (what, index, writes), parameter in zip(kinds, module.parameters, strict=True):
        if what == "BUFFER":
            size = re.search(r"dereferenceable\((\d+)\)", parameter)
            types.append("void *")
            values.append(f"buffer({index}, {size[1] if size else 0})")
            buffers |= 1 << index
            written |= writes << index
        elif parameter.startswith(("<3 x i32>", "<2 x i32>")):
            n = parameter[1]
            types.append(f"Vector{n}")
            values.append(f"vector{n}(place().{what.lower()})")
        else:
            types.append("uint32_t")
            values.append(f"place().{what.lower()}")
    lines = [f'extern "C" void kernel{number}({", ".join(types)}) asm("{module.entry}");']
    body = []
    for i, (name, size) in enumerate(module.shared):
        lines.append(f'extern "C" char shared{number}_{i} asm("{name}");')
        lines.append(f'extern "C" const uint64_t size{number}_{i} asm("{size}");')
        body.append(f"static_threadgroup_memory(&shared{number}_{i}, size{number}_{i});")
    if module.init:
        lines.append(f'extern "C" void init{number}() asm("{module.init}");')
        body.append(f"init{number}();")
    for index, name in module.constants:
        lines.append(f'extern "C" char constant{number}_{index} asm("{name}");')
    body.append(f"kernel{number}({', '.join(values)});")
    lines.append(f"static void call{number}() {{ {' '.join(body)} }}")
    return "\n".join(lines), f"call{number}, {buffers}u, {written}u, 0, 0"


def parameter_kinds(source, function):
    """From the source: what each parameter is, and whether it may be written."""
    prepared = prepass.prepare(source.read(source.files[0]), "")
    return [
        (*prepass.parameter_kind(function, text), "const" not in text.split())
        for text in prepass.split(prepared.parameters[function])
    ]


def build(name, source, fma, folder):
    """Objects of all kernels of a source, and the glue's text."""
    # Without an instruction that fuses, what may be fused is not.
    left_out = ("-W",) if fma else ("-W", "-mfma")
    flags = [f for f in COMMON if not f.startswith(left_out)] + ["-Wno-override-module"]
    texts = ['#include "air_glue.h"\nusing namespace emulator;']
    rows, constants, objects = [], [], []
    for number, kernel in enumerate(source.kernels):
        mlx_name = metallib.compiled_name(kernel.name)
        bitcode, text = folder / f"{number}.bc", folder / f"{number}.ll"
        bitcode.write_bytes(metallib.bitcode(mlx_name))
        run(NEW_CLANG, "-x", "ir", "-S", "-emit-llvm", "-Xclang", "-disable-llvm-passes",
            "-Wno-override-module", bitcode, "-o", text)  # fmt: skip
        module = Module(text.read_text(), mlx_name, f"{name}{number}")
        text.write_text(module.text.replace("FUSED", "true" if fma else "false"))
        objects.append(folder / f"{number}.o")
        run(NEW_CLANG, *flags, "-x", "ir", "-c", text, "-o", objects[-1])
        kinds = parameter_kinds(source, kernel.function.split("<")[0])
        code, row = glue_kernel(number, module, kinds)
        texts.append(code)
        rows.append(f'{{"{kernel.name}", {row}}}')
        constants += [f"{{{i}, 1, &constant{number}_{i}}}" for i, _ in module.constants]
    texts.append(f"static const Kernel kernels[] = {{{', '.join(rows)}}};")
    texts.append(f"static const Constant constants[] = {{{', '.join(constants) or '{}'}}};")
    texts.append(f'extern "C" const Library emulated_library = {{{len(rows)}, {len(constants)}, '
                 "kernels, constants};")  # fmt: skip
    return objects, "\n".join(texts)


def compile_air(name, fma=True):
    source = oracle.sources()[name]
    own = pathlib.Path(__file__).read_text()
    stem = f"air_{name}-{made_from(own, build_runtime(), fma, [k.name for k in source.kernels])}"
    library = BUILD / f"{stem}.so"
    if library.exists():
        return library
    runtime = build_runtime()
    folder = BUILD / f"{stem}.{os.getpid()}"
    folder.mkdir(parents=True)
    objects, text = build(name, source, fma, folder)
    (folder / "glue.cpp").write_text(text)
    run(CLANG, *COMMON, "-std=c++17", "-shared", f"-I{EMULATOR}", folder / "glue.cpp", *objects,
        runtime, "-o", folder / "library.so")  # fmt: skip
    (folder / "library.so").rename(library)
    shutil.rmtree(folder)
    return library


@functools.cache
def library(name, fma=True):
    """MLX's compiled kernels under the names of oracle.py."""
    return Library(compile_air(name, fma))


def libraries(fma=True):
    return {name: library(name, fma) for name in oracle.sources()}
