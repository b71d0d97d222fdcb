"""The library of compiled kernels in MLX's wheel: where each one's bitcode is, and MLX's names."""

import functools
import mmap
import struct

import wheel


@functools.cache
def contents():
    wheel.fetch()
    with open(wheel.METALLIB, "rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def bitcode(name):
    offset, size = modules()[name]
    return contents()[offset : offset + size]


@functools.cache
def modules():
    """Where each function's bitcode is: name to (offset, size)."""
    data = contents()
    if data[:4] != b"MTLB":
        raise ValueError(f"{wheel.METALLIB} is no metallib")
    list_at = struct.unpack_from("<Q", data, 24)[0]
    bitcode_at = struct.unpack_from("<Q", data, 72)[0]
    at, found = list_at + 4, {}
    for _ in range(struct.unpack_from("<I", data, list_at)[0]):
        tags, next_tag = {}, at + 4
        while (tag := data[next_tag : next_tag + 4]) != b"ENDT":
            size = struct.unpack_from("<H", data, next_tag + 4)[0]
            tags[tag] = data[next_tag + 6 : next_tag + 6 + size]
            next_tag += 6 + size
        name = tags[b"NAME"].rstrip(b"\0").decode()
        offset = struct.unpack("<3Q", tags[b"OFFT"])[2]
        found[name] = (bitcode_at + offset, struct.unpack("<Q", tags[b"MDSZ"])[0])
        at += struct.unpack_from("<I", data, at)[0]
    return found


def compiled_name(name):
    """MLX's name of a kernel, from that used here."""
    words = name.split("_")
    kind = "_".join(w for w in words if not w.isdigit())
    n = [int(w) for w in words if w.isdigit()]
    aligned = ["n", "t"]
    tile = ["bm{}", "bn{}", "sm{}", "sn{}", "tm{}", "tn{}"]
    gemv = "_".join(tile).format(*n) if len(n) == 6 else ""
    block = "bm{}_bn{}_bk{}_wm{}_wn{}"
    return {
        "gemv": lambda: f"gemv_bfloat16_{gemv}_nc0_axpby0",
        "gemv_bias": lambda: f"gemv_bfloat16_{gemv}_nc0_axpby1",
        "gather": lambda: f"gemv_gather_bfloat16_{gemv}",
        "wide": lambda: "gemv_wide_bfloat16_nv{}_kl{}".format(*n),
        "wide_gather": lambda: "gemv_wide_gather_bfloat16_nv{}_kl{}".format(*n),
        "fused": lambda: "steel_gemm_fused_nt_bfloat16_bfloat16_" + block.format(*n),
        "splitk": lambda: (
            f"steel_gemm_splitk_nt_bfloat16_float32_bm{n[0]}_bn{n[1]}_bk16_wm2_wn2"
            f"_MN_{aligned[n[2]]}aligned_K_{aligned[n[3]]}aligned"
        ),
        "accumulate": lambda: "steel_gemm_splitk_accum_bfloat16_float32",
        "accumulate_bias": lambda: "steel_gemm_splitk_accum_bfloat16_float32_axbpy",
        "gather_rhs": lambda: (
            "steel_gather_mm_rhs_nt_bfloat16_bfloat16_" + block.format(16, 64, 16, 1, 2)
        ),
        "gather_mm": lambda: "steel_gather_mm_nt_bfloat16_bfloat16_"
        + block.format(64, 32, 32, 2, 2),
    }[kind]()
