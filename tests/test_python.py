"""import binade: tensors read as numpy arrays equal the original's bytes; whole checkpoints are
packed, restored and verified; failures and cancellation raise.
"""

import builtins
import ctypes
import math
import os
import signal
import subprocess
import sys
import textwrap
import threading
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import binade
import cli_harness
import numpy as np
import pytest
from binade._library import library
from cli_harness import EMBED, NASTY, NORM, Q_PROJ, SHARD, make_bf16, read_files, write_shard

ROOT = Path(__file__).parent.parent
ODD = "odd.embed_tokens.weight"
DTYPES = {
    "BOOL": np.bool_,
    "U8": np.uint8,
    "I8": np.int8,
    "I16": np.int16,
    "U16": np.uint16,
    "F16": np.float16,
    "I32": np.int32,
    "U32": np.uint32,
    "F32": np.float32,
    "I64": np.int64,
    "U64": np.uint64,
    "F64": np.float64,
    "C64": np.complex64,
    "BF16": np.uint16,
}


def make_tensors():
    """{name: (dtype, shape, data)}"""
    tensors = {
        **cli_harness.make_tensors(),
        ODD: ("BF16", [3, 50, 300], make_bf16(45000, 4)),
        "scalar": ("F32", [], b"\0\0\x80\x3f"),
        "empty": ("F16", [3, 0, 2], b""),
        "empty rows": ("F16", [3, 2, 0], b""),
        "no rows": ("F8_E5M2", [0, 4], b""),
        "eight": ("F8_E4M3", [2, 3], bytes(range(6))),
        "four": ("F4", [2, 4], bytes(range(4))),
        "new": ("X9", [7], bytes(range(63))),
    }
    for dtype, kind in DTYPES.items():
        nbytes = np.dtype(kind).itemsize
        tensors[f"as {dtype}"] = (dtype, [2, 2], bytes([1, 0] * (2 * nbytes)))
    return tensors


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("python") / "model"
    path.mkdir()
    write_shard(path / SHARD, make_tensors())
    (path / "config.json").write_text("{}")
    return path


@pytest.fixture(scope="module", params=[0, 1, 2], ids=["plain", "format1", "format2"])
def path(request, model):
    """The model and its packs."""
    if request.param == 0:
        return model
    packed = model.parent / f"packed{request.param}"
    report = binade.pack(model, packed, format=request.param)
    assert report.npacked == 3
    return packed


@pytest.fixture
def checkpoint(path):
    with binade.open(path) as c:
        yield c


# ---- Reading -------------------------------------------------------------------------------------


def test_checkpoint_is_a_mapping(checkpoint, path, model):
    tensors = make_tensors()
    assert checkpoint.format == (0 if path == model else int(path.name[-1]))
    assert checkpoint.has_records == (path != model)
    assert checkpoint.path == str(path.resolve())
    assert list(checkpoint) == list(tensors)
    assert len(checkpoint) == len(tensors)
    assert NASTY in checkpoint
    for name in ("absent", "", "\ud800", Q_PROJ + ".raw"):
        assert name not in checkpoint
        with pytest.raises(KeyError):
            checkpoint[name]
    for name in (0, None, b"scalar", ("scalar",)):
        assert name not in checkpoint
        assert checkpoint.get(name) is None
        with pytest.raises(KeyError):
            checkpoint[name]


def test_descriptions(checkpoint):
    for name, (dtype, shape, data) in make_tensors().items():
        t = checkpoint[name]
        assert (t.name, t.dtype, t.shape, t.nbytes) == (name, dtype, tuple(shape), len(data))
        assert t.rows == math.prod(shape[:-1])
        assert t.cols == (shape[-1] if shape else 1)
        assert t.file == SHARD
        assert t.packed == (checkpoint.format > 0 and name in (Q_PROJ, EMBED, ODD))
        assert t.stored_nbytes == len(data) or (t.packed and 0 < t.stored_nbytes < len(data))
    classes = {name: checkpoint[name].cls for name in (Q_PROJ, EMBED, NORM)}
    assert classes == {Q_PROJ: "linear", EMBED: "embed", NORM: "other"}


def test_whole_tensors(checkpoint):
    for name, (dtype, shape, data) in make_tensors().items():
        found = checkpoint[name].read()
        assert found.dtype == DTYPES.get(dtype, np.uint8)
        assert found.tobytes() == data
        if dtype in DTYPES or dtype.startswith("F8"):
            assert found.shape == tuple(shape)
        else:
            assert found.shape[:-1] == tuple(shape[:-1])


@pytest.mark.parametrize("name", [Q_PROJ, EMBED, ODD, NORM, "scalar", "eight", "empty rows"])
def test_rows(checkpoint, name):
    t = checkpoint[name]
    _, _, data = make_tensors()[name]
    row_nbytes = len(data) // t.rows
    for row0, row1 in [(0, 1), (1, 2), (t.rows - 1, t.rows), (7, 7), (3, 150), (0, t.rows)]:
        if row1 > t.rows:
            continue
        found = t.read(row0, np.int64(row1))
        assert found.shape == (row1 - row0, t.cols)
        assert found.tobytes() == data[row0 * row_nbytes : row1 * row_nbytes]
    assert t.read(t.rows // 2).tobytes() == data[t.rows // 2 * row_nbytes :]
    assert t.read(row1=t.rows // 2).tobytes() == data[: t.rows // 2 * row_nbytes]


def test_bfloat16(checkpoint, monkeypatch):
    kind = np.dtype("V2")
    monkeypatch.setitem(sys.modules, "ml_dtypes", types.SimpleNamespace(bfloat16=kind))
    found = checkpoint[ODD].read(bfloat16=True)
    assert found.dtype == kind
    assert found.shape == (3, 50, 300)
    assert found.tobytes() == make_tensors()[ODD][2]
    assert checkpoint["as I32"].read(bfloat16=True).dtype == np.int32
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    assert checkpoint["as I32"].read(bfloat16=True).dtype == np.int32
    with pytest.raises(ImportError, match=r"pip install 'binade\[bfloat16\]'"):
        checkpoint[ODD].read(bfloat16=True)


@pytest.mark.parametrize("rows", [(-1, 2), (2, 1), (0, 257), (256, 300), (None, -1), (2**64, None)])
def test_rows_that_are_not_there(checkpoint, rows):
    with pytest.raises(binade.UsageError, match=r"found rows \[.*expected .* <= 256$"):
        checkpoint[Q_PROJ].read(*rows)


def test_rows_are_integers(checkpoint):
    with pytest.raises(TypeError):
        checkpoint[Q_PROJ].read(0, 1.0)


def test_closed(path):
    with binade.open(path) as c:
        t = c[NORM]
    for use in (t.read, lambda: len(c), lambda: c[NORM], lambda: list(c)):
        with pytest.raises(binade.UsageError, match="closed"):
            use()


def test_threads_read_at_once(path):
    """Also while another thread closes: a read that has begun ends well."""
    _, _, data = make_tensors()[ODD]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(20):
            c = binade.open(path)
            t, started = c[ODD], threading.Barrier(5)

            def read(i, t=t, started=started):
                started.wait()
                try:
                    return i, t.read(30 * i, 30 * i + 30).tobytes()
                except binade.UsageError:
                    return i, None

            reads = [pool.submit(read, i) for i in range(4)]
            started.wait()
            c.close()
            for i, found in (r.result() for r in reads):
                assert found in (None, data[18000 * i : 18000 * (i + 1)])
    with binade.open(path) as c, ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda i: c[ODD].read(i, i + 1).tobytes(), range(150))
        assert b"".join(found) == data


# ---- Whole checkpoints ---------------------------------------------------------------------------


def test_round_trip(model, tmp_path):
    packed, restored = tmp_path / "packed", str(tmp_path / "restored")
    original = read_files(model)
    report = binade.pack(str(model), packed, threads=1, exclude=["o*", "absent"])
    assert report.npacked == 2
    assert report.ntensors == len(make_tensors())
    assert report.nfiles == 2
    assert report.nweights == 256 * 256 + 6400
    assert report.input_nbytes == len(original[SHARD])
    assert report.output_nbytes == (packed / SHARD).stat().st_size
    assert report.seconds > 0
    found = binade.verify(packed, against=model)
    assert (found.proven, found.compared, found.nfiles) == (True, True, 2)
    assert found.nbytes == sum(len(data) for data in original.values())
    found = binade.unpack(packed, restored)
    assert (found.whole_files, found.nfiles, found.ntensors) == (True, 2, len(make_tensors()))
    assert read_files(tmp_path / "restored") == original


def test_options(model, tmp_path):
    out = tmp_path / "out"
    binade.pack(model, out, format=1, classes=["other", "embed"], records=False)
    with binade.open(out) as c:
        assert (c.format, c.has_records) == (1, False)
        assert {name for name, t in c.items() if t.packed} == {EMBED, ODD, "as BF16"}
    assert binade.verify(out).proven is False
    assert binade.unpack(out, tmp_path / "restored").whole_files is False
    with pytest.raises(binade.UsageError, match=r"exist|replace"):
        binade.pack(model, out)
    binade.pack(model, out, force=True)
    assert binade.verify(out).proven is True


def test_one_string_for_many(model, tmp_path):
    binade.pack(model, tmp_path / "a", classes="linear")
    binade.pack(model, tmp_path / "b", classes="linear,embed", exclude="odd.*")
    for name, packed in (("a", {Q_PROJ}), ("b", {Q_PROJ, EMBED})):
        with binade.open(tmp_path / name) as c:
            assert {name for name, t in c.items() if t.packed} == packed


@pytest.mark.parametrize("wrong", [None, b"p", 3, Path])
def test_what_is_no_path(model, tmp_path, wrong):
    out = tmp_path / "out"
    for use in (
        lambda: binade.open(wrong),
        lambda: binade.pack(wrong, out),
        lambda: binade.pack(model, wrong),
        lambda: binade.pack(model, out, exclude=[wrong]),
        lambda: binade.unpack(wrong, out),
        lambda: binade.unpack(model, wrong),
        lambda: binade.verify(wrong),
    ):
        with pytest.raises(TypeError, match=r"expected a str or os.PathLike\[str\], not "):
            use()
    for use in (
        lambda: binade.pack(model, out, exclude=wrong),
        lambda: binade.pack(model, out, classes=wrong),
        lambda: binade.pack(model, out, classes=[wrong]),
        lambda: binade.pack(model, out, threads=wrong),
        lambda: binade.pack(model, out, format=wrong),
    ):
        if wrong != 3:
            with pytest.raises(TypeError):
                use()
    assert list(tmp_path.iterdir()) == []


def test_c_refuses_null_paths(model, tmp_path):
    path, null, message = os.fsencode(model), None, ctypes.create_string_buffer(1024)
    for name, *paths in (
        ("open", null),
        ("pack", null, path),
        ("pack", path, null),
        ("unpack", null, path),
        ("unpack", path, null),
        ("verify", null),
    ):
        message.value = b""
        rest = [null, null, message]
        if name == "open":
            rest[1] = ctypes.byref(ctypes.c_void_p())
        assert getattr(library, f"binade_{name}")(*paths, *rest) == 2
        assert message.value.startswith(b"no ")
        assert message.value.endswith(b" is given")


@pytest.mark.parametrize("threads", [-1, 1025, 2**32, 2**40])
def test_numbers_of_threads(model, tmp_path, threads):
    for use in (
        lambda: binade.pack(model, tmp_path / "a", threads=threads),
        lambda: binade.unpack(model, tmp_path / "a", threads=threads),
        lambda: binade.verify(model, threads=threads),
    ):
        with pytest.raises(binade.UsageError, match=f"found {threads}, expected 0 to 1024"):
            use()


def test_names_of_the_module():
    assert {"Checkpoint", "open", "pack", "__version__", "__doc__"} <= set(dir(binade))
    assert not {"annotations", "ctypes", "np", "Any", "encode", "_run"} & set(dir(binade))
    names = {}
    exec("from binade import *", names)
    assert names["pack"] is binade.pack
    assert names.get("open", builtins.open) is builtins.open
    assert {name for name in names if name != "__builtins__"} == set(binade.__all__)


def test_failures(model, tmp_path):
    for number in (3, 0, -1, 2**32 + 1):
        with pytest.raises(binade.UsageError, match=f"format {number}: only 1 and 2"):
            binade.pack(model, tmp_path / "a", format=number)
    with pytest.raises(binade.UsageError, match="NUL"):
        binade.pack(model, "a\0b")
    with pytest.raises(binade.UsageError, match="not a Binade checkpoint"):
        binade.unpack(model, tmp_path / "a")
    with pytest.raises(binade.UsageError, match="hf download"):
        binade.open("nobody/nothing")
    packed = tmp_path / "packed"
    binade.pack(model, packed)
    with pytest.raises(OSError, match="a"):
        binade.pack(model, packed / SHARD / "a")
    shard = bytearray((packed / SHARD).read_bytes())
    shard[-1] ^= 1
    (packed / SHARD).write_bytes(shard)
    with pytest.raises(binade.DataError, match="checksum") as caught:
        binade.verify(packed)
    assert isinstance(caught.value, (binade.BinadeError, ValueError))
    (packed / SHARD).write_bytes(shard[:100])
    with pytest.raises(binade.DataError, match=SHARD):
        binade.open(packed)
    assert {path.name for path in tmp_path.iterdir()} == {"packed"}


def test_progress(model, tmp_path):
    (tmp_path / "model/.git").mkdir(parents=True)
    for name, data in read_files(model).items():
        (tmp_path / "model" / name).write_bytes(data)
    packed, total = tmp_path / "packed", sum(len(data) for data in read_files(model).values())
    steps, notes = [], []
    binade.pack(tmp_path / "model", packed, progress=lambda *step: steps.append(step))
    assert steps == sorted(steps)
    assert steps[0] == (0, total)
    assert total / 2 < steps[-1][0] <= total
    binade.pack(tmp_path / "model", packed, force=True, note=notes.append)
    assert len(notes) == 1
    assert ".git" in notes[0]
    for run in (
        binade.verify,
        lambda path, progress: binade.unpack(path, tmp_path / "u", progress=progress),
    ):
        steps.clear()
        run(packed, progress=lambda *step: steps.append(step))
        assert steps[-1][1] == total


class Stop(BaseException):
    pass


@pytest.mark.parametrize("at", [1, 3])
@pytest.mark.parametrize("threads", [1, 2])
def test_what_a_callback_raises_cancels(model, tmp_path, threads, at):
    packed = tmp_path / "packed"
    binade.pack(model, packed)
    calls = []

    def stop(done, total):
        calls.append(done)
        if len(calls) == at:
            raise Stop(f"at {done} of {total}")

    for run in (
        lambda: binade.pack(model, tmp_path / "a", threads=threads, progress=stop),
        lambda: binade.unpack(packed, tmp_path / "a", threads=threads, progress=stop),
        lambda: binade.verify(packed, threads=threads, progress=stop),
    ):
        calls.clear()
        with pytest.raises(Stop, match=r"^at "):
            run()
        assert len(calls) == at
        assert {path.name for path in tmp_path.iterdir()} == {"packed"}


def test_force_replaces_no_directory_made_meanwhile(model, tmp_path):
    out = tmp_path / "packed"

    def make_directory(_done, _total):
        out.mkdir(exist_ok=True)
        (out / "mine").write_text("kept")

    with pytest.raises(binade.UsageError, match="is not a Binade checkpoint"):
        binade.pack(model, out, force=True, progress=make_directory)
    assert read_files(out) == {"mine": b"kept"}
    assert list(tmp_path.iterdir()) == [out]


def test_hashing_and_comparing_can_be_cancelled(model, tmp_path):
    """They come after the last byte is counted, and may take as long as what came before."""
    packed, counted = tmp_path / "packed", []
    binade.pack(model, packed, records=False, threads=1, progress=lambda *a: counted.append(a))
    packed_calls = len(counted)
    counted.clear()
    binade.verify(packed, progress=lambda *a: counted.append(a))
    calls = []

    def stop_after(most):
        calls.append(most)
        if len(calls) > most:
            raise Stop

    with pytest.raises(Stop):
        binade.verify(packed, against=model, progress=lambda *_: stop_after(len(counted)))
    calls.clear()
    with pytest.raises(Stop):
        binade.pack(model, tmp_path / "a", threads=1, progress=lambda *_: stop_after(packed_calls))
    assert {path.name for path in tmp_path.iterdir()} == {"packed"}


INTERRUPTED = """
    import signal, sys
    import binade
    signal.signal(signal.SIGINT, signal.default_int_handler)
    name, threads, *paths = sys.argv[1:]
    def progress(done, total):
        if done and started:
            print(started.pop(), flush=True)
    started = ["started"]
    try:
        getattr(binade, name)(*paths, threads=int(threads), progress=progress)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


@pytest.fixture(scope="module")
def large_pack(tmp_path_factory):
    path = tmp_path_factory.mktemp("large") / "packed"
    binade.pack(cli_harness.large_model(), path, records=False)
    return path


@pytest.mark.parametrize("threads", [0, 1])
@pytest.mark.parametrize("name", ["pack", "unpack", "verify"])
def test_ctrl_c(large_pack, tmp_path, name, threads):
    source = cli_harness.large_model() if name == "pack" else large_pack
    paths = [source] if name == "verify" else [source, tmp_path / "out"]
    command = [sys.executable, "-c", textwrap.dedent(INTERRUPTED), name, threads, *paths]
    with subprocess.Popen(map(str, command), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as p:
        assert p.stdout.readline() == b"started\n"
        p.send_signal(signal.SIGINT)
        assert p.communicate(timeout=60) == (b"interrupted\n", b"")
    assert p.returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_version():
    assert binade.__version__ == "1.0.0.dev0"


# ---- Installation --------------------------------------------------------------------------------


def run(*command, **options):
    env = {
        key: value for key, value in os.environ.items() if not key.startswith(("BINADE", "PYTHON"))
    }
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        env=env,
        check=False,
        **options,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout.strip()


def test_pip_install_replaces_the_older_package(model, tmp_path):
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    python, command = tmp_path / "venv/bin/python", tmp_path / "venv/bin/binade"
    pip = (python, "-m", "pip", "--disable-pip-version-check")
    run(*pip, "install", "--no-deps", "binade==0.1.1")
    run(*pip, "install", ROOT)
    assert "Version: 1.0.0.dev0\n" in run(*pip, "show", "binade")
    assert run(command, "--version").startswith("binade 1.0.0.dev0")
    run(command, "pack", model, "--out", tmp_path / "packed")
    script = f"""
        import binade
        assert binade.__version__ == "1.0.0.dev0"
        with binade.open("packed") as c:
            print(binade.__file__, c[{ODD!r}].read().sum())
    """
    where, total = run(python, "-c", textwrap.dedent(script), cwd=tmp_path).rsplit(maxsplit=1)
    with binade.open(model) as c:
        assert int(total) == c[ODD].read().sum()
    package = Path(where).parent
    assert package.is_relative_to(tmp_path / "venv")
    files = {path.name for path in package.iterdir() if path.is_file()}
    assert files & {"libbinade.so", "libbinade.dylib"}
    others = {name for name in files if not name.startswith("libbinade")}  # MLX adds one
    assert others == {"__init__.py", "_library.py", "py.typed"}
