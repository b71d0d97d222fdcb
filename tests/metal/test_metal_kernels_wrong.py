"""Our kernels made wrong on purpose: the comparisons and checks of the other tests tell each."""

import mlx_operands as operands
import numpy as np
import pytest
from agreement import Variant, assert_same
from emulator import EmulationError
from r4_comparing import M3_MAX, M4, multiply_by_mlx
from r4_loading import Loading
from r4_products import Ours, pack

SHARE, SUM, MATVEC, WIDE, TILE, GEMM, SINK, SCAN = (
    f"src/metal/r4_{name}.metal"
    for name in ("share", "sum", "matvec", "wide", "tile", "gemm", "sink", "scan")
)
BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"
NOTHING = "(void)0;"


def run(shape, changes, checked, gpu, **options):
    x, w = operands.operands(operands.pairs, *shape)
    replace = {file: [(old, new)] for file, old, new in changes}
    made = Ours(gpu, checked=checked, replace=replace, **options)
    got = made.matmul(x, [pack(w)])[0]
    assert_same(got, multiply_by_mlx(x, w, Variant(), gpu), f"{shape}")


ROW, SHORT, LONG = (1, 130, 1536), (1, 40, 48), (1, 16, 4096)
FEW, MANY, SPLIT = (5, 64, 2052), (17, 130, 116), (40, 40, 600)


@pytest.mark.parametrize(
    ("shape", "change"),
    [
        (ROW, (SUM, "sum += w.y * x.y;\n    sum += w.z * x.z;",
               "sum += w.z * x.z;\n    sum += w.y * x.y;")),
        (ROW, (SUM, "apart = nlanes / 2; apart >= 1; apart >>= 1",
               "apart = 1; apart < nlanes; apart <<= 1")),
        (ROW, (SUM, "p1, xs[1]);\n        sums[r] = r4_add4(sums[r], p2, xs[2])",
               "p2, xs[2]);\n        sums[r] = r4_add4(sums[r], p1, xs[1])")),
        (ROW, (SUM, "if (r4_escape_group(block.escapes[r].escape) == g)", "if (false)")),
        (ROW, (SHARE, "r4_unpack(raw, codes >> 8 | codes << 24, bases)",
               "r4_unpack(raw, codes >> 8, bases)")),
        (SHORT, (MATVEC, "r4_read_quad(part, mine, p + 4 * i, bases)",
                 "r4_read_quad(part, mine, 4 * p + i, bases)")),
        (SHORT, (MATVEC, "r4_add_lanes(sums[r], 4)", "r4_add_lanes(sums[r], 2)")),
        (LONG, (MATVEC, "int s = 1; s < R4_LONG_NSIMDS; s++", "int s = R4_LONG_NSIMDS; s-- > 1;")),
        (LONG, (MATVEC, "step * R4_LONG_NSIMDS + simd", "simd * nsteps + step")),
        (FEW, (WIDE, "uint i = 0; i < R4_NCHUNKS; i++)\n                block",
               "uint i = R4_NCHUNKS; i-- > 0;)\n                block")),
        (MANY, (GEMM, "r4_add_fused<BM, BN, WM, WN, BK>", "r4_add_fused<BM, BN, WM, WN, 16>")),
        (MANY, (TILE, "if (at.lane >= T::MINE) return escapes;", "return escapes;")),
        (SPLIT, (GEMM, "(tile.z + 1) * length", "(tile.z + 1) * length - 8")),
    ],
)  # fmt: skip
def test_another_order_is_told(shape, change):
    gpu = M3_MAX if shape is FEW else M4
    run(shape, [], False, gpu)
    with pytest.raises(AssertionError, match="differ"):
        run(shape, [change], False, gpu)


@pytest.mark.parametrize(
    ("shape", "file"), [(LONG, MATVEC), (MANY, TILE), (SPLIT, TILE)]
)  # fmt: skip
def test_a_removed_barrier_is_told(shape, file):
    run(shape, [], True, M4)
    with pytest.raises((EmulationError, AssertionError)) as caught:
        run(shape, [(file, BARRIER, NOTHING)], True, M4)
    assert isinstance(caught.value, EmulationError)
    assert set(caught.value.findings) & {"race", "uninitialised"}


def test_a_removed_barrier_of_a_simdgroup_is_told():
    """Escapes are put over what other lanes unpacked."""
    with pytest.raises(EmulationError) as caught:
        run(MANY, [(TILE, "simdgroup_barrier(mem_flags::mem_threadgroup);", NOTHING)], True, M4)
    assert set(caught.value.findings) & {"race", "uninitialised"}


@pytest.mark.parametrize(
    ("shape", "change"),
    [
        (ROW, (SUM, "g < nwhole; g++", "g <= nwhole; g++")),
        ((1, 33, 500), (SUM, "if (column + j < ncols) four", "if (column + j <= ncols) four")),
        ((1, 33, 500), (SUM, "if (column + 4 <= ncols)", "if (column + 4 <= ncols + 4)")),
        (MANY, (TILE, "j < there ? bfloat(from[j])", "j <= there ? bfloat(from[j])")),
        (MANY, (TILE, "if (column >= operands.rows.nrows) continue;", "")),
        (SHORT, (MATVEC, "if (row + r < part.taken)", "if (row + r <= part.taken)")),
    ],
)  # fmt: skip
def test_access_outside_of_buffers_is_told(shape, change):
    with pytest.raises(EmulationError, match="outside"):
        run(shape, [change], True, M4)


def test_loading_that_is_wrong_is_told():
    w = operands.operands(operands.pairs, 1, 20, 700)[1]
    want = pack(w)
    for file, old, new in (
        (SINK, "mine |= uint(is_escape) << q;", "mine |= uint(is_escape) << (q ^ 1);"),
        (SINK, "sink.span_mask |= 1u <<", "sink.span_mask |= 2u <<"),
        (SINK, "codes[q] = q >= nthere ? 0", "codes[q] = q >= nthere ? 1"),
    ):
        run_ = Loading(replace={file: [(old, new)]})
        got, _ = run_.from_bf16(w, want.base)
        assert not all(
            np.array_equal(getattr(got, n), getattr(want, n)) for n in ("slices", "rows", "escapes")
        )


def test_a_race_in_the_scan_is_told():
    values = np.arange(3000, dtype=np.uint32)
    with pytest.raises(EmulationError) as caught:
        Loading(checked=True, replace={SCAN: [(BARRIER, NOTHING)]}).scan(values)
    assert set(caught.value.findings) & {"race", "uninitialised"}
