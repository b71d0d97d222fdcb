"""Loading on Metal makes the R4 of the plain C definition from BF16 and from the streams of either
format, tells damaged streams, and R4 goes back to BF16 whole, by views and by rows."""

import dataclasses

import mlx_operands as operands
import numpy as np
import pytest
import r4_streams
from agreement import Variant
from r4_comparing import kernels, ours
from r4_loading import Loading
from r4_products import pack

SHAPES = [(1, 8), (3, 5), (7, 128), (9, 130), (33, 512), (20, 700), (40, 1100), (5, 4100)]
GENERATORS = [operands.normal, operands.pairs, operands.all_patterns, operands.tiny]
SOURCES = ["bf16", "rice", "fixed"]


def loading(checked=False, **options):
    made = Loading(**options)
    made.kernels = kernels(True, checked)
    return made


def load(run, source, w, base, seed=0):
    if source == "bf16":
        return run.from_bf16(w, base)
    streams = getattr(r4_streams, source)(np.random.default_rng(seed), w)
    return getattr(run, f"from_{source}")(streams, base)


def assert_loaded(got, want, what):
    for name in ("slices", "rows", "escapes"):
        a, b = getattr(got, name), getattr(want, name)
        assert np.array_equal(a, b), f"{what}: {name}"


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("checked", [False, True])
def test_loading(source, checked):
    for i, (nrows, k) in enumerate(SHAPES):
        for j, generator in enumerate(GENERATORS[i % 2 :: 2] if checked else GENERATORS):
            w = operands.operands(generator, 1, nrows, k)[1]
            want = pack(w)
            run = loading(checked, order=(i + j) % 4, fill=(0xA5, 0xFF)[j % 2])
            got, damaged = load(run, source, w, want.base, seed=i)
            assert not damaged
            assert_loaded(got, want, f"{source}, {nrows} x {k}, {generator.__name__}")


@pytest.mark.parametrize("source", SOURCES)
def test_rows_with_more_escapes_than_are_kept(source):
    w = operands.operands(operands.normal, 1, 12, 600)[1]
    for row, n in enumerate((0, 1, 15, 16, 17, 32, 33, 64, 100, 599, 600, 2)):
        w[row, :n] = w[row, :n] & 0x807F | 0x4280
    want = pack(w, base=110)
    got, damaged = load(loading(), source, w, 110)
    assert not damaged
    assert_loaded(got, want, source)


@pytest.mark.parametrize("source", SOURCES)
def test_rows_of_more_spans_than_a_mask_has_bits(source):
    w = operands.operands(operands.normal, 1, 2, 70000)[1]
    want = pack(w)
    assert len(want.escapes) > 0
    got, damaged = load(loading(), source, w, want.base)
    assert not damaged
    assert_loaded(got, want, source)
    assert (ours(Variant()).rebuild(got) == w).all()


def test_more_rows_than_a_scan_has_threads():
    for n in (1, 1023, 1024, 1025, 5000):
        values = np.random.default_rng(n).integers(0, 1000, n, np.uint32)
        for checked in (False, True):
            starts = loading(checked).scan(values)
            assert (starts == np.concatenate([[0], np.cumsum(values)])).all()


# ---- Damaged streams


def damage_rice(streams):
    """What is changed, and how."""
    last = len(streams.row_starts) - 1
    starts = streams.row_starts
    yield "a word more", {"bits": np.append(streams.bits, np.uint32(0))}
    yield "a word less", {"bits": streams.bits[:-1]}
    yield "no words", {"bits": streams.bits[:0]}
    for row, start in ((1, 0), (1, int(starts[1]) + 1), (last, 2**32 - 1), (0, 1)):
        changed = starts.copy()
        changed[row] = start
        yield f"row {row} begins at {start}", {"row_starts": changed}
    for tile, meta in ((0, 255), (1, 7 | 63 << 2), (2, 0)):
        changed = streams.meta.copy()
        changed[tile] = meta
        yield f"tile {tile} is {meta}", {"meta": changed}


def damage_fixed(streams):
    yield "a word more", {"idx": np.append(streams.idx, np.uint32(0))}
    yield "a word less", {"idx": streams.idx[:-1]}
    yield "no words", {"idx": streams.idx[:0]}
    yield "an escape more", {"esc": np.append(streams.esc, np.uint8(0))}
    yield "an escape less", {"esc": streams.esc[:-1]}
    yield "no escapes", {"esc": streams.esc[:0]}
    for tile, meta in ((0, 9), (1, 16), (2, 21), (3, 32), (4, 255)):
        changed = streams.meta.copy()
        changed[tile] = meta
        yield f"tile {tile} is {meta}", {"meta": changed}


@pytest.mark.parametrize("source", ["rice", "fixed"])
def test_damaged_streams_are_told(source):
    """And nothing is read outside them."""
    w = operands.operands(operands.pairs, 1, 20, 300)[1]
    streams = getattr(r4_streams, source)(np.random.default_rng(1), w)
    run = loading(checked=True)
    from_source = getattr(run, f"from_{source}")
    assert not from_source(streams, 100)[1]
    for what, change in {"rice": damage_rice, "fixed": damage_fixed}[source](streams):
        assert from_source(dataclasses.replace(streams, **change), 100)[1], what


# ---- Back to BF16


@pytest.mark.parametrize("checked", [False, True])
def test_rebuilding(checked):
    for i, (nrows, k) in enumerate(SHAPES):
        for generator in GENERATORS:
            w = operands.operands(generator, 1, nrows, k)[1]
            got = ours(Variant(order=i % 4), checked=checked).rebuild(pack(w))
            assert (got == w).all(), f"{nrows} x {k}, {generator.__name__}"


def test_rebuilding_rows_of_every_block():
    w = operands.operands(operands.pairs, 1, 4 * 30, 700)[1].reshape(4, 30, 700)
    weight = pack(w)
    for row0, taken in ((0, 30), (0, 7), (7, 23), (29, 1)):
        got = ours(Variant()).rebuild(weight.view(row0, taken))
        assert (got.reshape(4, taken, 700) == w[:, row0 : row0 + taken]).all()


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int64])
def test_rows(dtype, checked):
    rng = np.random.default_rng(3)
    for nrows, k in SHAPES:
        w = operands.operands(operands.pairs, 1, nrows, k)[1]
        run, weight = ours(Variant(), checked=checked), pack(w)
        for nids in (1, 5, 30):
            ids = rng.integers(0 if dtype is np.uint32 else -nrows, nrows, nids).astype(dtype)
            assert (run.take_rows(weight, ids) == w[ids.astype(np.int64)]).all()
        outside = np.array(
            [nrows, np.iinfo(dtype).max, *([-nrows - 1] if dtype != np.uint32 else [])]
        )
        assert (run.take_rows(weight, outside.astype(dtype)) == 0x7FC0).all()
        if nrows > 4:
            view = weight.view(2, nrows - 3)
            ids = np.array([0, nrows - 4], dtype)
            assert (run.take_rows(view, ids) == w[2:][[0, nrows - 4]]).all()
