"""The emulator itself: what Metal's functions compute, and that each kind of mistake is found."""

import functools

import numpy as np
import pytest
from agreement import assert_same
from emulator import Body, EmulationError, Kernel, Source, compile_kernels
from sources import BUILD

PATH = "tests/metal/controls/probes.metal"
NAMES = ["simd", "float_sum", "matrix", "bfloat", "bits", "places", "constant", "atomic", "reverse",
         "neighbours", "ended", "one_place"]  # fmt: skip
THREADGROUP_BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"


@functools.cache
def probes(checked=False, *changes):
    source = Source("probes", [PATH], [Kernel(n, f"probe_{n}") for n in NAMES])
    source.replace = {PATH: list(changes)}
    return compile_kernels(source, checked=checked)


def launch(name, buffers, threads=32, group=None, library=None, **options):
    return (library or probes()).launch(
        name, buffers, (threads, 1, 1), (group or threads, 1, 1), **options
    )


def random_words(n, seed=1, bound=1 << 32):
    return np.random.default_rng(seed).integers(0, bound, n).astype(np.uint32)


# ---- What Metal's functions compute


@pytest.mark.parametrize("order", range(4))
def test_simd_functions(order):
    v, lane = random_words(32, bound=1000), np.arange(32)
    out = np.zeros(15 * 32, np.uint32)
    launch("simd", [v, out], order=order)
    sums = np.cumsum(v)
    everywhere = np.ones(32, np.uint32)
    ballot = sum(1 << i for i in range(32) if v[i] & 1)
    want = [
        *(v[31 - lane], np.where(lane + 5 < 32, v[(lane + 5) % 32], v)),
        *(np.where(lane >= 5, v[lane - 5], v), v[lane ^ 9], v[7] * everywhere),
        *(sums[31] * everywhere, v.min() * everywhere, v.max() * everywhere),
        *(sums, sums - v, ballot * everywhere),
        (int((v > 3).all()) | int((v == 3).any()) << 1) * everywhere,
        np.uint32(np.bitwise_or.reduce(v) ^ np.bitwise_and.reduce(v) ^ np.bitwise_xor.reduce(v))
        * everywhere,
        *(np.where(lane < 3, 77, v[lane - 3]), v[0] * everywhere),
    ]
    assert_same(out.reshape(15, 32), np.array(want, np.uint32), "functions")


def test_float_sums_in_every_order():
    v = np.random.default_rng(2).standard_normal(32) * 3.0 ** np.arange(32)
    v = v.astype(np.float32)
    results = set()
    for order in range(3):
        out = np.zeros(32, np.float32)
        launch("float_sum", [v, out], sum=order)
        assert (out == out[0]).all()
        results.add(out[0])
    assert len(results) > 1


def test_matrices():
    rng = np.random.default_rng(3)
    a, b, c = (rng.integers(-9, 10, (8, 8)).astype(np.float32) for _ in range(3))
    for mma in range(6):
        d = np.zeros((8, 8), np.float32)
        launch("matrix", [a, b, c, d], mma=mma)
        assert_same(d, a @ b.T + c, mma)


def test_bfloat_is_rounded_to_even():
    patterns = random_words(1 << 14, seed=4)
    patterns[:6] = [0x7F800000, 0x7FC00001, 0x7F7FFFFF, 0x3F808000, 0x3F818000, 0xFFFFFFFF]
    out, widened = np.zeros(1 << 14, np.uint16), np.zeros(1 << 14, np.float32)
    launch("bfloat", [patterns.view(np.float32), out, widened], 1 << 14, 256)
    rounded = (patterns.astype(np.uint64) + 0x7FFF + (patterns >> 16 & 1)) >> 16
    nan = (patterns & 0x7FFFFFFF) > 0x7F800000
    want = np.where(nan, 0x7FC0, rounded).astype(np.uint16)
    assert_same(out, want, "rounded")
    assert_same(widened.view(np.uint32), want.astype(np.uint32) << 16, "widened")


def test_bits():
    v = random_words(64, seed=5)
    v[:3] = [0, 1, 0xFFFFFFFF]
    out = np.zeros((64, 10), np.uint32)
    launch("bits", [v, out], 64, 32)
    for got, word in zip(out, v.tolist(), strict=True):
        text = f"{word:032b}"
        four = [(word + i) & 0xFFFFFFFF for i in range(4)]
        pair = (four[2] ^ four[0]) + ((four[3] ^ four[1]) << 4)
        want = [
            *(text.count("1"), len(text) - len(text.lstrip("0"))),
            *(len(text) - len(text.rstrip("0")), int(text[::-1], 2)),
            *(word >> 5 & 0x7FF, (word & ~(0xFF << 7)) | 0x5A << 7),
            *((word << 9 | word >> 23) & 0xFFFFFFFF, word * 0x9E3779B9 >> 32),
            (word >> 16 & 0xFF) | (word & 0xFFFF) << 16,
            (pair + (2 if word > 5 else 1)) & 0xFFFFFFFF,
        ]
        assert got.tolist() == want, hex(word)


def test_places_and_edges_of_the_grid():
    grid, group = (37, 5, 3), (16, 2, 2)
    out = np.zeros((3, 5, 37, 8), np.uint32)
    probes().launch("places", [out], grid, group)
    for z, y, x in ((0, 0, 0), (2, 4, 36), (1, 3, 20), (2, 1, 33)):
        inside = (x % 16, y % 2, z % 2)
        at = (x // 16, y // 2, z // 2)
        size = [min(g, n - g * i) for g, n, i in zip(group, grid, at, strict=True)]
        index = inside[0] + size[0] * (inside[1] + size[1] * inside[2])
        want = [a + 100 * b + 10000 * c for a, b, c in (inside, at, size)]
        assert out[z, y, x, :5].tolist() == [*want, index, index % 32 + index // 32 * 100]


def test_function_constants():
    out = np.zeros(8, np.uint32)
    launch("constant", [out], 8, constants={3: 1000})
    assert_same(out, 1000 * np.arange(8, dtype=np.uint32), "constant")
    with pytest.raises(ValueError, match="no function constants"):
        launch("constant", [out], 8, constants={4: 1})


def test_atomics_and_threadgroup_arguments():
    for checked in (False, True):
        total = np.zeros(1, np.uint32)
        launch("atomic", [total], 192, 64, probes(checked), threadgroup_bytes={0: 256})
        assert total == 3 * 63 * 64 // 2


def test_bodies_have_the_signature_of_mlx():
    path = BUILD / "probe_body.metal"
    path.write_text("out[thread_position_in_grid.x] = T(x[0] + N + x_shape[0] + x_ndim);\n")
    inputs = [("x", "int"), ("few", "float", "constant"), ("one", "int", "scalar")]
    body = Body("probe", path, inputs, [("out", "float")], {"N": 5, "T": "float"})
    assert body.signature(path.read_text()) == (
        "template <int N, typename T> [[kernel]] void body_probe("
        "const device int* x [[buffer(0)]], const constant int* x_shape [[buffer(1)]], "
        "const constant int& x_ndim [[buffer(2)]], const constant float* few [[buffer(3)]], "
        "const constant int& one [[buffer(4)]], device float* out [[buffer(5)]], "
        "uint3 thread_position_in_grid [[thread_position_in_grid]]) {"
    )
    out = np.zeros(4, np.float32)
    x, few = np.array([100], np.int32), np.zeros(3, np.float32)
    buffers = [x, np.array([9], np.int32), np.array([1], np.int32), few, x, out]
    launch("probe", buffers, 4, library=compile_kernels(Source("body", [], [body])))
    assert out.tolist() == [115] * 4


# ---- What is found


def fails_with(finding, name, buffers, threads=32, group=None, library=None, **options):
    with pytest.raises(EmulationError) as caught:
        launch(name, buffers, threads, group, library, **options)
    assert set(caught.value.findings) - set(options.get("allow", ())) == {finding}, caught.value
    return str(caught.value)


def reverse_buffers():
    return [random_words(256), np.zeros(256, np.uint32)]


def test_a_right_kernel_has_no_findings():
    for checked in (False, True):
        for order in range(4):
            v, out = reverse_buffers()
            report = launch("reverse", [v, out], 256, library=probes(checked), order=order)
            assert_same(out, v[::-1], order)
            assert report.findings == {}
            assert report.counts.barriers == 1


def test_a_missing_barrier():
    changes = (THREADGROUP_BARRIER, "")
    seen = set()
    for order in range(4):
        v, out = reverse_buffers()
        launch("reverse", [v, out], 256, library=probes(False, changes), order=order)
        seen.add((out != v[::-1]).any())
    assert True in seen
    fails_with("race", "reverse", reverse_buffers(), 256, None, probes(True, changes), fill=0,
               allow=["uninitialised"])  # fmt: skip


def test_a_barrier_that_names_no_memory():
    changes = (THREADGROUP_BARRIER, "threadgroup_barrier(mem_flags::mem_none);")
    fails_with("race", "reverse", reverse_buffers(), 256, None, probes(True, changes))


def test_simdgroup_barriers_order_their_simdgroup_only():
    library = probes(True)
    v, out = reverse_buffers()
    launch("neighbours", [v, out], 256, library=library)
    assert_same(out, v[np.arange(256) ^ 1], "neighbours")
    changes = ("row[i ^ 1]", "row[i ^ 32]")
    fails_with("race", "neighbours", reverse_buffers(), 256, None, probes(True, changes), order=2,
               allow=["uninitialised"])  # fmt: skip


def test_reads_and_writes_out_of_bounds():
    v, out = reverse_buffers()
    text = fails_with("out of bounds", "reverse", [v[:255], out], 256, None, probes(True))
    assert "a load of 4 bytes" in text
    assert "0 bytes from the end of buffer 0" in text
    text = fails_with("out of bounds", "reverse", [v, out[:255]], 256, None, probes(True))
    assert "a store of 4 bytes" in text
    changes = ("row[255 - i]", "row[256 - i]")
    text = fails_with("out of bounds", "reverse", [v, out], 256, None, probes(True, changes))
    assert "the end of threadgroup memory" in text


def test_threadgroup_memory_that_nobody_wrote():
    changes = ("row[i] = in[i];", "if (i != 9) row[i] = in[i];")
    fails_with("uninitialised", "reverse", reverse_buffers(), 256, None, probes(True, changes))
    seen = []
    for fill in (0xA5, 0xFF):
        v, out = reverse_buffers()
        launch("reverse", [v, out], 256, library=probes(False, changes), fill=fill)
        seen.append(out[255 - 9])
    assert seen == [0xA5A5A5A5, 0xFFFFFFFF]


def test_lanes_that_have_ended():
    v = random_words(32)
    fails_with("inactive lane", "ended", [v, np.zeros(32, np.uint32), np.array([20], np.uint32)])
    report = launch("ended", [v, np.zeros(32, np.uint32), np.array([20], np.uint32)],
                    allow=["inactive lane"])  # fmt: skip
    assert report.findings == {"inactive lane": 1}


def test_divergent_barriers():
    changes = (THREADGROUP_BARRIER, "if (i < 200) " + THREADGROUP_BARRIER)
    fails_with("divergent barrier", "reverse", reverse_buffers(), 256, None, probes(False, changes))
    both = f"if (i & 1) {THREADGROUP_BARRIER} else {THREADGROUP_BARRIER}"
    changes = (THREADGROUP_BARRIER, both)
    fails_with("divergent barrier", "reverse", reverse_buffers(), 256, None, probes(False, changes))


def test_lanes_that_never_meet():
    changes = (THREADGROUP_BARRIER, f"if (i == 3) simd_sum(i); else {THREADGROUP_BARRIER}")
    text = fails_with("stuck", "reverse", reverse_buffers(), 256, None, probes(False, changes))
    assert "probes.metal:" in text
    changes = (THREADGROUP_BARRIER, "if (i & 1) simd_sum(i); else simd_max(i);")
    fails_with("stuck", "reverse", reverse_buffers(), 256, None, probes(False, changes))


def test_a_result_that_two_threads_write():
    out = np.zeros(32, np.uint32)
    fails_with("double write", "one_place", [out], 64, 64, probes(True))
    # Nor does anything order threadgroups.
    fails_with("double write", "one_place", [out], 64, 1, probes(True))


def test_launches_that_cannot_be():
    v, out = reverse_buffers()
    fails_with("bad launch", "reverse", [v], 256)
    fails_with("bad launch", "reverse", [v, out, out], 256)
    fails_with("bad launch", "reverse", [v, out], 2048)
    fails_with("bad launch", "atomic", [out], 64)


def test_counts():
    v, out = reverse_buffers()
    report = launch("reverse", [v, out], 256, library=probes(True))
    counts = report.counts
    assert counts.load_bytes[0] == counts.store_bytes[1] == 1024
    assert counts.loads[0] == counts.stores[1] == 256
    assert counts.load_bytes[31] == counts.store_bytes[31] == 1024
