"""The report on a machine: its checks can fail, and a kernel that failed is not used again."""

import json
import os
import subprocess
import sys

import pytest

mx = pytest.importorskip("mlx.core")

import mlx_operands as data  # noqa: E402
from binade.mlx import _ops, doctor, facts, selfcheck, speeds, trust  # noqa: E402

MATMUL, GATHER = _ops.r4_matmul, _ops.r4_gather_mm
CHECKS = [check.what for check in selfcheck.CHECKS if not check.is_optional]


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    """The user's own is left alone, and speeds take no time."""
    monkeypatch.setenv("BINADE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(speeds, "_SHAPES", {"cpu": [[(64, 128), (128, 64)]]})
    monkeypatch.setattr(speeds, "_NBYTES", {"cpu": 1})
    monkeypatch.setattr(trust, "devices", lambda: [mx.cpu])
    return tmp_path / "cache" / "distrusted.json"


@pytest.fixture(autouse=True)
def distrusted(monkeypatch):
    """What is distrusted; really done, it would hold for the tests that follow."""
    names = []
    monkeypatch.setattr(_ops, "distrust", names.append)
    return names


@pytest.fixture
def quick(monkeypatch):
    """Few shapes: enough where the checks themselves are not what is tested."""
    monkeypatch.setattr(selfcheck, "ONE_ROW", [(37, 100)])
    monkeypatch.setattr(selfcheck, "SEVERAL_ROWS", [(3, 37, 100)])
    monkeypatch.setattr(selfcheck, "LARGE", (64, 128))
    monkeypatch.setattr(selfcheck, "EXPERTS", [(5, 37, 100)])


def reverse(w):
    return _ops.r4_make(_ops.r4_rebuild(w)[..., ::-1])


def matmul_reversed(x, w, bias=None):
    return MATMUL(x[..., ::-1], reverse(w), bias)


@pytest.fixture
def broken(monkeypatch):
    """Products add in reverse."""
    monkeypatch.setattr(_ops, "r4_matmul", matmul_reversed)


# ---- Checks


def test_everything_is_equal_here():
    results = selfcheck.run(mx.cpu)
    assert [r.what for r in results] == CHECKS
    assert {r.what: r.failure for r in results if r.failure} == {}
    assert sum(r.ncases for r in results) > 500
    kernels = [r.kernels for r in results]
    assert kernels == [["rebuild"], *[["cpu"]] * (len(results) - 2), []]


def flip(array):
    """Its last bit wrong in one place."""
    bits = data.bits_of(array).copy()
    bits.flat[bits.size // 2] ^= 1
    return data.to_mlx(bits)


FAULTS = {
    "r4_rebuild": ({"weight made and rebuilt"}, lambda f: lambda *a, **k: flip(f(*a, **k))),
    "r4_make": (set(CHECKS) - {"another order is noticed"}, lambda f: lambda w: f(-w)),
    "r4_matmul": (
        {
            *("one row of x", "several rows of x", "products with a bias"),
            "another order is noticed",
        },
        lambda f: matmul_reversed,
    ),
    "r4_matmuls": (
        {"one row, two weights", "one row, three weights"},
        lambda f: lambda x, ws: [matmul_reversed(x, w) for w in ws],
    ),
    "r4_gather_mm": (
        {"experts, few tokens", "experts, sorted"},
        lambda f: lambda x, w, **k: f(x[..., ::-1], reverse(w), **k),
    ),
    "r4_gather_mms": (
        {"experts, two weights"},
        lambda f: lambda x, ws, **k: [GATHER(x[..., ::-1], reverse(w), **k) for w in ws],
    ),
    "r4_rows": ({"embedding rows"}, lambda f: lambda *a, **k: flip(f(*a, **k))),
}


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("operation", FAULTS)
def test_each_operation_can_fail(operation, monkeypatch):
    what, fault = FAULTS[operation]
    monkeypatch.setattr(_ops, operation, fault(getattr(_ops, operation)))
    assert {r.what for r in selfcheck.run(mx.cpu) if r.failure} == what


@pytest.mark.usefixtures("quick")
def test_an_operation_that_raises_fails(monkeypatch):
    def fail(*_):
        raise RuntimeError("the device is gone\nand more")

    monkeypatch.setattr(_ops, "r4_rows", fail)
    (result,) = [r for r in selfcheck.run(mx.cpu) if r.failure]
    assert result.failure == "after nothing: RuntimeError: the device is gone"
    assert result.kernels == ["cpu"]


def test_a_difference_is_told():
    a = data.to_mlx(data.np.array([[0x3F80, 0x7FC0], [0x8000, 0x7F80]], data.np.uint16))
    assert selfcheck.difference("x", a, a) is None
    b = data.to_mlx(data.np.array([[0x3F80, 0x7FC1], [0x0000, 0x7F80]], data.np.uint16))
    assert selfcheck.difference("x", a, b) == (
        "x: 2 of 4 differ, first at [0, 1] of [2, 2]: found 0x7fc0, expected 0x7fc1"
    )
    assert "(2, 2), expected" in selfcheck.difference("x", a, a[0])
    assert "float32" in selfcheck.difference("x", a, a.astype(mx.float32))


def test_the_default_device_comes_back():
    before = mx.default_device()
    with pytest.raises(ZeroDivisionError), selfcheck.default_device(mx.cpu):
        1 / 0  # noqa: B018
    assert mx.default_device() == before


# ---- The report


LINES = [
    *("system ", "CPU ", "binade ", "Python ", "MLX ", "packages "),
    *CHECKS,
    *("one row of x", "several rows of x", "one row, with a bias", "experts, sorted"),
    *("64x128 and 128x64 ",),
]


@pytest.mark.usefixtures("quick")
def test_report(capsys, cache):
    assert doctor.main(["--command", "9.9 (odd kernels)"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = [line.strip() for line in out.splitlines()]
    for start in LINES:
        assert any(line.startswith(start) for line in lines), start
    assert "command      9.9 (odd kernels)" in lines
    assert f"MLX          {mx.__version__}, the one that products are proven to equal" in lines
    assert "FAILED" not in out
    assert str(cache.parent) not in out
    assert lines[-1].startswith(f"All {len(CHECKS)} checks passed: ")
    assert not cache.exists()


@pytest.mark.usefixtures("quick")
def test_report_as_json(capsys):
    assert doctor.main(["--json"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    report = json.loads(out)
    assert report["ok"] is True
    assert report["command"] == "doctor"
    assert report["paths"]["cpu"]["one row of x"]["kernel"] == "cpu"
    assert len(report["checks"]) == len(CHECKS)
    assert report["checks"][1]["failure"] is None
    assert report["distrusted"] == {}
    assert report["speeds"][0]["ratio"] > 0


@pytest.mark.usefixtures("quick")
def test_quiet(capsys):
    assert doctor.main(["-q"]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.usefixtures("quick", "broken")
def test_failure(capsys, cache, distrusted):
    assert doctor.main(["--quiet"]) == 1
    out = capsys.readouterr().out
    assert out.count("FAILED") == 4
    assert "one row of x             cpu" in out
    assert " differ, first at [0, 0] of [1, 37]: found 0x" in out
    assert "cpu: not used from now on" in out
    assert "Rebuilding failed" not in out
    assert distrusted == ["cpu"]
    (entry,) = json.loads(cache.read_text())["entries"]
    assert entry["machine"] == trust.machine(mx.cpu)
    assert "first at" in entry["kernels"]["cpu"]
    assert os.listdir(cache.parent) == [cache.name]


@pytest.mark.usefixtures("quick")
def test_failure_of_rebuilding(capsys, cache, distrusted, monkeypatch):
    rebuild = _ops.r4_rebuild
    monkeypatch.setattr(_ops, "r4_rebuild", lambda w: flip(rebuild(w)))
    assert doctor.main(["-q"]) == 1
    assert "Rebuilding failed too" in capsys.readouterr().out
    assert distrusted == []
    assert not cache.exists()


@pytest.mark.usefixtures("quick")
def test_forbidden_rebuilding_is_checked_too():
    _ops.forbid_rebuild(True)
    try:
        assert doctor.main(["-q"]) == 0
    finally:
        _ops.forbid_rebuild(False)


@pytest.mark.usefixtures("quick", "broken")
def test_nothing_is_kept_of_forced_kernels(capsys, cache, distrusted, monkeypatch):
    monkeypatch.setenv("BINADE_GEMM_ROW", "in-order")
    assert doctor.main([]) == 1
    assert "nothing of this is kept" in capsys.readouterr().out
    assert distrusted == ["cpu"]
    assert not cache.exists()


def test_forced_kernels_are_warned_of():
    env = {**os.environ, "BINADE_GEMM_ROW": "in-order"}
    command = [sys.executable, "-c", "import binade.mlx"]
    result = subprocess.run(command, env=env, capture_output=True, text=True)
    assert result.returncode == 0
    assert "BINADE_GEMM_ROW is set" in result.stderr


@pytest.mark.usefixtures("quick")
def test_speeds_that_cannot_be_measured(capsys, monkeypatch):
    def fail(_):
        raise RuntimeError("[malloc] Unable to allocate\n")

    monkeypatch.setattr(speeds, "measure", fail)
    assert doctor.main([]) == 0
    assert "not measured: [malloc] Unable to allocate" in capsys.readouterr().out


def test_usage(capsys):
    for args in (["--nonsense"], ["x"], ["--js"]):
        with pytest.raises(SystemExit, match="2"):
            doctor.main(args)
        assert "error: unrecognized arguments" in capsys.readouterr().err


def test_settings_are_told_without_paths(monkeypatch):
    monkeypatch.setenv("BINADE_NUM_THREADS", "3")
    monkeypatch.setenv("MLX_SOMETHING", "/home/someone")
    versions = facts.of_versions(None)
    assert "BINADE_NUM_THREADS=3" in versions["settings"]
    assert "someone" not in versions["settings"]
    assert "BINADE_CACHE" not in versions["settings"]
    assert "3 threads" in facts.of_devices()["CPU"]


def test_facts_about_a_gpu():
    info = {"device_name": "G", "architecture": "sm_90", "total_memory": 3 << 30}
    info |= {"compute_capability_major": 9, "compute_capability_minor": 0, "uuid": "secret"}
    assert facts._gpu(info) == "G, sm_90, compute capability 9.0, 3.0 GiB"
    assert facts._gpu({"device_name": "M"}) == "M"


# ---- Trust


def fail_once(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(_ops, "r4_matmul", matmul_reversed)
        assert doctor.main(["-q"]) == 1


@pytest.mark.usefixtures("quick")
def test_what_failed_is_distrusted_until_it_passes(capsys, monkeypatch, cache, distrusted):
    fail_once(monkeypatch)
    distrusted.clear()
    with pytest.warns(UserWarning, match=r"are not used \(cpu\)"):
        trust.apply()
    assert distrusted == ["cpu"]
    assert doctor.main([]) == 0
    assert "trusted again: cpu" in capsys.readouterr().out
    assert not cache.exists()
    distrusted.clear()
    trust.apply()
    assert distrusted == []


def in_python(*args, **env):
    command = [sys.executable, *args]
    env = {**os.environ, **env}
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=300)


@pytest.mark.usefixtures("quick")
def test_later_processes(monkeypatch, cache):
    fail_once(monkeypatch)
    code = """if True:
        import mlx.core as mx
        from binade.mlx import _ops
        x, w = mx.ones((1, 8), mx.bfloat16), mx.ones((3, 8), mx.bfloat16)
        packed = _ops.r4_make(w)
        print(mx.array_equal(_ops.r4_matmul(x, packed), x @ w.T).item())
        print(_ops.path(packed, 1)[0], _ops.counts()["rebuild"])
    """
    result = in_python("-c", code)
    assert result.stdout == "True\nrebuild 1\n"
    assert result.stderr.count("Warning") == 1
    # The doctor itself checks what is distrusted, and with all its shapes.
    result = in_python("-m", "binade.mlx.doctor", "-q")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert not cache.exists()
    assert in_python("-W", "error", "-c", code).stdout == "True\ncpu 0\n"


@pytest.mark.parametrize("key", ["device", "name", "architecture", "binade", "mlx", "kernels"])
def test_another_machine_is_another_matter(key, cache, distrusted):
    here = trust.machine(mx.cpu)
    cache.parent.mkdir()
    entry = {"machine": here | {key: "other"}, "kernels": {"cpu": "text"}}
    cache.write_text(json.dumps({"format": 1, "entries": [entry]}))
    trust.apply()
    assert distrusted == []
    trust.record(mx.cpu, {"cpu": "new"}, set())
    trust.record(mx.cpu, {}, {"cpu"})
    assert json.loads(cache.read_text())["entries"] == [entry]


def test_a_kernel_that_did_not_run_stays_distrusted():
    trust.record(mx.cpu, {"a": "1", "b": "2"}, set())
    trust.record(mx.cpu, {"c": "3"}, {"b"})
    assert trust.recorded(mx.cpu) == {"a": "1", "c": "3"}


HOSTILE = {
    "empty": b"",
    "not JSON": b"{",
    "not UTF-8": b'{"format": 1, "entries": ["\xff"]}',
    "deep": b"[" * 60000,
    "large": b" " * (1 << 17),
    "a list": b"[]",
    "another format": b'{"format": 2, "entries": []}',
    "no entries": b'{"format": 1}',
    "not a list": b'{"format": 1, "entries": {}}',
    "not an entry": b'{"format": 1, "entries": [3]}',
    "no machine": b'{"format": 1, "entries": [{"kernels": {}}]}',
    "kernels as list": b'{"format": 1, "entries": [{"machine": {}, "kernels": ["cpu"]}]}',
    "a number": b'{"format": 1, "entries": [{"machine": {}, "kernels": {"cpu": 1}}]}',
    "an escape": b'{"format": 1, "entries": [{"machine": {}, "kernels": {"\\u001b": "x"}}]}',
    "half a character": b'{"format": 1, "entries": [{"machine": {}, "kernels": {"\\ud800": ""}}]}',
    "a long number": b'{"format": 1, "entries": [' + b"1" * 60000 + b"]}",
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_hostile_file(content, cache, distrusted):
    cache.parent.mkdir()
    cache.write_bytes(content)
    assert_warns_once()
    assert distrusted == []
    assert trust.recorded(mx.cpu) == {}
    trust.record(mx.cpu, {"cpu": "text"}, set())
    assert trust.recorded(mx.cpu) == {"cpu": "text"}


def assert_warns_once():
    with pytest.warns(UserWarning, match="cannot be read") as warned:
        trust.apply()
    assert len(warned) == 1
    assert "\n" not in str(warned[0].message)


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda p: os.symlink(p, p)])
def test_what_is_no_file(make, cache):
    cache.parent.mkdir()
    make(cache)
    assert_warns_once()


@pytest.mark.usefixtures("quick", "broken")
def test_a_cache_that_cannot_be_written(cache, capsys, distrusted):
    cache.parent.write_text("a file where a folder should be")
    assert doctor.main(["-q"]) == 1
    assert "this cannot be kept for later runs" in capsys.readouterr().out
    assert distrusted == ["cpu"]


def test_where_the_cache_is(monkeypatch):
    monkeypatch.setenv("BINADE_CACHE", "/a")
    monkeypatch.setenv("XDG_CACHE_HOME", "/b")
    monkeypatch.setenv("HOME", "/c")
    assert str(trust.cache_path()) == "/a/distrusted.json"
    monkeypatch.setenv("BINADE_CACHE", "")
    assert str(trust.cache_path()) == "/b/binade/distrusted.json"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert str(trust.cache_path()) == "/c/.cache/binade/distrusted.json"
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as without a home
    assert trust.cache_path() is None
    trust.apply()


def test_a_report_that_cannot_be_written():
    command = [sys.executable, "-m", "binade.mlx.doctor"]
    with open("/dev/full", "w") as full:
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert result.returncode == 2
    assert result.stderr == "binade: cannot write the report: No space left on device\n"
