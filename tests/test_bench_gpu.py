"""What the benchmark of GPUs makes of kernels' times, with a fake in place of NVIDIA's CUPTI."""

import ctypes
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "bench"))

import bench_gpu  # noqa: E402
import gpu_tables  # noqa: E402
from kernel_times import (  # noqa: E402
    Kernel,
    KernelTimesError,
    Recorder,
    find_cupti,
    group_by_operation,
    median_operation,
)

FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-O2", "-shared", "-fPIC", "-pthread"]
STRICT = ["-Wall", "-Wextra", "-Wshadow", "-Wpedantic", "-Werror"]


def build(source: Path, library: Path, strict: list[str]) -> Path:
    command = ["cc", *FLAGS, *strict, "-o", library, source, "-ldl"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    return library


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """bench/kernel_times.c, without a warning, and the fake CUPTI."""
    folder = tmp_path_factory.mktemp("kernel_times")
    return (
        build(ROOT / "bench/kernel_times.c", folder / "kernel_times.so", STRICT),
        build(ROOT / "tests/shims/fake_cupti.c", folder / "fake_cupti.so", ["-Wall", "-Wextra"]),
    )


@pytest.fixture
def library(built, tmp_path):
    """Its own, since what was loaded once stays."""
    return shutil.copy(built[0], tmp_path / "kernel_times.so")


@pytest.fixture
def cupti(built, tmp_path):
    return shutil.copy(built[1], tmp_path / "cupti.so")


class Gpu:
    def __init__(self, cupti):
        self._cupti = ctypes.CDLL(str(cupti))

    def launch(self, *kernels):
        for name, start, end in kernels:
            text = None if name is None else name.encode()
            self._cupti.fake_launch(text, ctypes.c_uint64(start), ctypes.c_uint64(end))

    def drop(self, count):
        self._cupti.fake_drop(ctypes.c_size_t(count))

    def fail(self):
        self._cupti.fake_fail_enable(1)


@pytest.fixture
def gpu(cupti):
    return Gpu(cupti)


@pytest.fixture
def recorder(library, cupti):
    return Recorder(library, cupti)


# ---- Records


def test_kernels_come_in_the_order_of_their_starts(gpu, recorder):
    recorder.start()
    big = 1 << 61
    gpu.launch(("b", big + 30, big + 45), ("a", big + 10, big + 20), ("b", big + 50, big + 51))
    assert recorder.take() == [
        Kernel("a", big + 10, big + 20),
        Kernel("b", big + 30, big + 45),
        Kernel("b", big + 50, big + 51),
    ]
    recorder.stop()


def test_only_what_ran_since_the_last_take(gpu, recorder):
    gpu.launch(("before", 1, 2))
    recorder.start()
    gpu.launch(("first", 3, 4))
    assert [kernel.name for kernel in recorder.take()] == ["first"]
    assert recorder.take() == []
    gpu.launch(("second", 5, 6))
    assert [kernel.name for kernel in recorder.take()] == ["second"]
    gpu.launch(("lost", 7, 8))
    recorder.stop()
    gpu.launch(("between", 9, 10))
    recorder.start()
    gpu.launch(("third", 11, 12))
    assert [kernel.name for kernel in recorder.take()] == ["third"]


def test_more_kernels_than_a_buffer_holds(gpu, recorder):
    kernels = [(f"kernel{i % 7}", 10 * i + 1, 10 * i + 4) for i in range(5000)]
    recorder.start()
    gpu.launch(*kernels)
    assert recorder.take() == [Kernel(*kernel) for kernel in kernels]


@pytest.mark.parametrize("times", [(0, 5), (9, 0), (9, 8)])
def test_kernel_without_times(gpu, recorder, times):
    recorder.start()
    gpu.launch(("good", 1, 2), ("bad", *times))
    with pytest.raises(KernelTimesError, match=r"^CUPTI has no times of a kernel, or lays out"):
        recorder.take()
    gpu.launch(("good", 3, 4))
    assert recorder.take() == [Kernel("good", 3, 4)]


def test_kernel_without_a_name(gpu, recorder):
    recorder.start()
    gpu.launch((None, 1, 2))
    assert recorder.take() == [Kernel("", 1, 2)]


def test_dropped_records(gpu, recorder):
    recorder.start()
    gpu.launch(("good", 1, 2))
    gpu.drop(1)
    with pytest.raises(KernelTimesError, match=r"^CUPTI dropped the times of some kernels$"):
        recorder.take()


# ---- What is missing


def test_no_gpu(gpu, recorder):
    gpu.fail()
    with pytest.raises(KernelTimesError) as failed:
        recorder.start()
    assert str(failed.value) == (
        "CUPTI does not record kernels, as where there is no NVIDIA GPU or its driver is too old: "
        "CUPTI_ERROR_UNKNOWN (999)"
    )


def test_no_cupti(library, tmp_path):
    with pytest.raises(KernelTimesError, match=r"^NVIDIA's CUPTI cannot be loaded: .*libnone\.so"):
        Recorder(library, tmp_path / "libnone.so").start()


def test_another_library(library, built):
    recorder = Recorder(library, built[0])
    wanted = r"kernel_times\.so is not NVIDIA's CUPTI: it has no cuptiActivityRegisterCallbacks$"
    with pytest.raises(KernelTimesError, match=wanted):
        recorder.start()
    for call in (recorder.take, recorder.stop):
        with pytest.raises(KernelTimesError, match=r"^recording has not been started$"):
            call()


def test_library_is_not_built(tmp_path, monkeypatch):
    monkeypatch.setenv("BINADE_KERNEL_TIMES", str(tmp_path / "none.so"))
    with pytest.raises(KernelTimesError, match=r"^bench/kernel_times\.c is not built, or .*none"):
        Recorder()


def test_places_of_cupti(tmp_path, monkeypatch):
    monkeypatch.delenv("BINADE_CUPTI", raising=False)
    folders = [tmp_path / "one", tmp_path / "two"]
    assert find_cupti(folders) == "libcupti.so.13"
    for folder, place in zip(folders, gpu_places(), strict=True):
        (folder / place).parent.mkdir(parents=True)
        (folder / place).touch()
        assert find_cupti(folders) == str(folder / place)
    monkeypatch.setenv("BINADE_CUPTI", "elsewhere")
    assert find_cupti(folders) == "elsewhere"


def gpu_places():
    """The older first: once both are there, the newer is found."""
    return ["nvidia/cuda_cupti/lib/libcupti.so.12", "nvidia/cu13/lib/libcupti.so.13"]


# ---- Operations


def in_turn(*kernels):
    """Kernels of so many nanoseconds, a gap of 1,000 after each."""
    done, at = [], 5000
    for name, duration in kernels:
        done.append(Kernel(name, at, at + duration))
        at += duration + 1000
    return done


def test_an_operation_is_the_sum_of_its_kernels():
    kernels = in_turn(("rebuild", 30), ("gemm", 5), ("rebuild", 40), ("gemm", 7))
    seconds, names, is_even = group_by_operation(kernels, 2)
    assert seconds == pytest.approx([35e-9, 47e-9])
    assert (names, is_even) == (["rebuild", "gemm"], True)


def test_median_of_a_round():
    kernels = in_turn(*(("gemv", duration) for duration in (10, 900, 12)))
    assert median_operation(kernels, 3) == (pytest.approx(12e-9), ["gemv"], True)


def test_signals_belong_to_no_operation():
    kernels = in_turn(("gemv", 10), ("_ZN3mlx4core19event_signal_kernelEv", 3), ("gemv", 20))
    assert group_by_operation(kernels, 2).seconds == pytest.approx([10e-9, 20e-9])


@pytest.mark.parametrize("names", ["aab", "aaba"])
def test_kernels_that_cannot_be_told_apart(names):
    """Three of two operations; four, but not the same two in both."""
    kernels = in_turn(*((name, 10 * (i + 1)) for i, name in enumerate(names)))
    total = sum(10e-9 * (i + 1) for i in range(len(names)))
    seconds, found, is_even = group_by_operation(kernels, 2)
    assert seconds == pytest.approx([total / 2] * 2)
    assert (found, is_even) == (["a", "b"], False)


def test_no_kernels():
    with pytest.raises(KernelTimesError, match=r"^CUPTI has recorded no kernel of 8 operations$"):
        group_by_operation([], 8)


# ---- Tables


def times(mlx, r4, **more):
    """Microseconds, of three rounds."""
    seconds = {"mlx": [1e-6 * mlx * i for i in (0.9, 1, 1.1)], "r4": [1e-6 * r4] * 3}
    return {"is_even": True, "is_repeated": True, **seconds, **more}


def shaped(n, k, mlx, r4, **more):
    return times(mlx, r4, rows=n, cols=k, models=["A model"], **more)


def text_of(write, *arguments):
    lines = []
    write(lines, *arguments)
    return " ".join("\n".join(lines).split())


def test_bands():
    ratios = {2: 2.0, 64: 0.5, 65: 4.0, 512: 1.0, 2048: 3.0}
    rows = [shaped(m, 1, ratio, 1, m=m) for m, ratio in ratios.items()]
    bands = gpu_tables.sum_up_bands(rows)
    assert [band["ms"] for band in bands] == [(2, 64), (65, 512), (2048, 2048)]
    assert [band["mean"] for band in bands] == pytest.approx([1, 2, 3])
    assert [band["worst"]["m"] for band in bands] == [64, 512, 2048]
    assert [band["ms"] for band in gpu_tables.sum_up_bands(rows[:2])] == [(2, 64)]


def matvec():
    return {
        "timed_by": "kernels",
        "rows": [
            shaped(4096, 4096, 10.08, 5.04, evaluated=times(13.5, 9)),
            shaped(14336, 4096, 28, 35, evaluated=times(50, 40), is_even=False),
            shaped(1024, 1024, 1, 10, evaluated=times(1, 1)),
        ],
    }


def test_matvec_table():
    text = text_of(gpu_tables.write_matvec, matvec(), "NVIDIA H200")
    assert "| 4096 x 4096: A model | 10.08 ± 10 % | 5.04 ± 0 % | 2.00x | 13.50 ± 10 %" in text
    assert "| 0.80x * |" in text
    assert "A * says that kernels could not be told apart" in text
    assert "A + says" not in text
    assert "Kernels: geometric mean 0.54x. The worst of at least 8 * 2^20 weights" in text
    assert "is 14336 x 4096 with 0.80x." in text
    assert "Evaluated: geometric mean 1.23x." in text


def test_what_is_known_is_compared_with_what_was_evaluated():
    """A kernel of 10.08 us is not the 13.4 us that were known with launching."""
    text = text_of(gpu_tables.write_matvec, matvec(), "NVIDIA H200")
    assert text.endswith("beside what it took on an H200 before: 14336 x 4096 50.0, not 31.7.")
    assert "H200" not in text_of(gpu_tables.write_matvec, matvec(), "NVIDIA L4")


def prompts():
    linear = [
        shaped(4096, 4096, 20, 10, m=2),
        shaped(4096, 4096, 200, 100, m=512, is_repeated=False),
        shaped(512, 4096, 20, 40, m=2),
    ]
    return {"linear": linear, "experts": [times(300, 200, tokens=64)], "timed_by": "kernels"}


def test_prompts_table():
    text = text_of(gpu_tables.write_prompts, prompts())
    assert "| M = 2 to 64 | 1.00x | 0.50x: 512 x 4096, M = 2 |" in text
    assert "| M = 65 to 512 | 2.00x | 2.00x: 4096 x 4096, M = 512 |" in text
    assert "| 4096 x 4096 | 2.00x (20.0) | 2.00x (200) + |" in text
    assert "| 512 x 4096 | 0.50x (20.0) | |" in text
    assert "| geometric mean | 1.00x | 2.00x |" in text
    assert "A + says that MLX's BF16 did not repeat its own bits" in text
    assert "| tokens: 64 | 300.00 ± 10 % | 200.00 ± 0 % | 1.50x |" in text


def test_page(tmp_path):
    """All parts of a page; results that were timed in another way are not kept."""
    alone = times(60, 50)
    parts = {
        "matvec": matvec(),
        "moe": {"rows": [times(30, 20, what="down", tokens=1)]},
        "rebuild": {"rows": 14336, "cols": 4096, "alone": alone, "products": [times(9, 9, m=2)]},
        "prompts": prompts(),
    }
    results = {"device": "a GPU", "date": "today", "versions": "mlx 1", "parts": parts}
    page = tmp_path / "page.md"
    bench_gpu.write_report(results, page)
    text = " ".join(page.read_text().split())
    assert text.count("What lies between kernels is not in them") == 1
    assert "| down, tokens: 1 | 30.00 ± 10 % | 20.00 ± 0 % | 1.50x |" in text
    assert "Rebuilding writes 2349 GB/s of BF16." in text
    assert json.loads(page.with_suffix(".json").read_text()) == results
    kept = [name for name, result in parts.items() if bench_gpu.still_holds(name, result)]
    assert kept == ["matvec", "prompts"]
    assert bench_gpu.still_holds("decode-8b", {})


def test_the_median_of_rounds_is_shown():
    row = times(10, 10)
    row["mlx"] = [1e-6, 2e-6, 9e-6]
    assert gpu_tables.cells(row) == ["2.00 ± 200 %", "10.00 ± 0 %", "0.20x"]
