"""`pack` and `unpack` stopped at random times, reading what may not be written, what shrinks or
changes: the output is absent or complete, and the source untouched.
"""

import functools
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from checkpoints import read_tree
from cli_harness import BINADE, Result, assert_failure, run, run_well, work_dir
from faults import list_hidden, write_large_model
from refusals import snapshot

COMMANDS = pytest.mark.parametrize("command", ["pack", "unpack"])
NKILLS = 25
MODEL_NBYTES = 30_000_000


@functools.cache
def make_place():
    """A model of some 30 MB, and its pack."""
    place = work_dir() / "kills"
    write_large_model(place / "model", MODEL_NBYTES)
    run_well("pack", place / "model", "--out", place / "packed")
    return place


class Job:
    def __init__(self, command, options=("--threads", "2")):
        self.place = make_place()
        self.source = self.place / ("model" if command == "pack" else "packed")
        self.out = self.place / "out"
        self.args = [command, self.source, "--out", self.out, "-q", *options]
        self.before = snapshot(self.place)

    def start(self):
        def reset():
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)

        args = [BINADE, *map(str, self.args)]
        pipe = subprocess.PIPE
        return subprocess.Popen(args, stdout=pipe, stderr=pipe, preexec_fn=reset)

    def measure(self):
        """How long it takes, in seconds."""
        start = time.monotonic()
        run_well(*self.args)
        duration = time.monotonic() - start
        self.remove_out()
        return duration

    def remove_out(self):
        self.assert_complete()
        shutil.rmtree(self.out)
        assert list_hidden(self.place) == []
        assert snapshot(self.place) == self.before

    def assert_complete(self):
        if self.args[0] == "pack":
            run_well("verify", self.out, "-q")
        else:
            assert read_tree(self.out) == read_tree(self.place / "model")

    def stop_at_random(self, rng, longest, number):
        """Returns what came of it."""
        process = self.start()
        time.sleep(rng.uniform(0, longest))
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
        return Result(process.returncode, out, err)


# ---- Signals


@COMMANDS
def test_kills(command):
    job, rng = Job(command), random.Random(f"kill {command}")
    longest = job.measure() * 1.05
    nwhole = nstale = 0
    for _ in range(NKILLS):
        job.stop_at_random(rng, longest, signal.SIGKILL)
        nstale += len(list_hidden(job.place))
        if job.out.exists():
            nwhole += 1
            job.assert_complete()
            shutil.rmtree(job.out)
    assert 0 < nwhole < NKILLS or nstale > 0
    # Each run has removed what the one before it left.
    assert len(list_hidden(job.place)) <= 1
    run_well(*job.args)
    job.remove_out()


def test_kills_while_a_pack_is_replaced():
    job, rng = Job("pack", ("--force",)), random.Random("kill force")
    longest = job.measure() * 1.05
    run_well(*job.args, "--no-hash")
    for _ in range(NKILLS // 3):
        job.stop_at_random(rng, longest, signal.SIGKILL)
        job.assert_complete()
    run_well(*job.args)
    job.remove_out()


@COMMANDS
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_polite_signals(command, number):
    job, rng = Job(command), random.Random(f"{number} {command}")
    longest, codes = job.measure() * 0.9, []
    for _ in range(6):
        result = job.stop_at_random(rng, longest, number)
        codes.append(result.code)
        assert list_hidden(job.place) == []
        assert result.code in (0, -number)
        if job.out.exists():  # the signal came when all was done
            assert result.err == ""
            job.remove_out()
            continue
        # Before it watches for signals it dies without a word.
        assert result.err in ("", f"binade: stopped by {number.name}\n")
        assert snapshot(job.place) == job.before
    assert -number in codes


@COMMANDS
def test_two_at_once(command):
    """Neither takes the hidden directory of the other for a stale one; the first to end wins."""
    job = Job(command)
    for _ in range(4):
        processes = [job.start(), job.start()]
        errors = [process.communicate(timeout=60)[1] for process in processes]
        assert sorted(process.returncode for process in processes) == [0, 2], errors
        job.remove_out()


# ---- Sources


@COMMANDS
def test_source_that_may_not_be_written(command):
    """As somebody who may only read it."""
    place = Path(tempfile.mkdtemp(prefix="binade-read-only-"))
    try:
        place.chmod(0o755)
        source = place / "source"
        shutil.copytree(make_place() / ("model" if command == "pack" else "packed"), source)
        (place / "free").mkdir()
        (place / "free").chmod(0o777)
        shutil.copy(BINADE, place / "binade")
        for path in [*source.rglob("*"), source]:
            path.chmod(0o555 if path.is_dir() else 0o444)
        before = snapshot(source)
        out = place / "free" / "out"
        words = [str(place / "binade"), command, source, "--out", out]
        if os.getuid() == 0:
            words = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *words]
        subprocess.run(words, check=True, capture_output=True, timeout=60, cwd=place)
        assert snapshot(source) == before
        if command == "pack":
            run_well("verify", out, "--against", source)
        else:
            assert read_tree(out) == read_tree(make_place() / "model")
    finally:
        for path in [source, *source.rglob("*")]:
            path.chmod(0o755)
        shutil.rmtree(place)


def wait_for_output(place, nbytes):
    """Until the hidden output holds that much."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for hidden in list_hidden(place):
            for path in (place / hidden).glob("*.safetensors"):
                if path.stat().st_size > nbytes:
                    return
    raise AssertionError("no output in 60 seconds")


def shrink(path):
    os.truncate(path, path.stat().st_size - MODEL_NBYTES // 8)


@pytest.mark.parametrize("options", [[], ["--no-hash"]])
@COMMANDS
def test_source_that_shrinks(command, options, tmp_path):
    """The process is stopped while one of its files is cut behind the part that it has read."""
    write_large_model(tmp_path / "model", MODEL_NBYTES * 2)
    run_well("pack", tmp_path / "model", "--out", tmp_path / "packed", *options)
    source = tmp_path / ("model" if command == "pack" else "packed")
    before = snapshot(tmp_path)
    args = [command, source, "--out", tmp_path / "out", "-q", "--threads", "1"]
    args += options if command == "pack" else []
    pipe = subprocess.PIPE
    process = subprocess.Popen([BINADE, *map(str, args)], stdout=pipe, stderr=pipe)
    wait_for_output(tmp_path, 1000)
    process.send_signal(signal.SIGSTOP)
    last = source / "model-1.safetensors"
    shrink(last)
    process.send_signal(signal.SIGCONT)
    out, err = process.communicate(timeout=60)
    result = Result(process.returncode, out, err)
    assert_failure(result, 2)
    assert "the file changed while it was read" in result.err
    assert str(last) in result.err
    after = snapshot(tmp_path)
    changed = last.relative_to(tmp_path)
    assert before.pop(changed) != after.pop(changed)
    assert after == before


@pytest.mark.parametrize("options", [[], ["--no-hash"]])
def test_source_that_changes(options, tmp_path):
    """Shards are read twice, so that a change between would make a pack of neither."""
    write_large_model(tmp_path / "model", MODEL_NBYTES * 2)
    args = ["pack", tmp_path / "model", "--out", tmp_path / "out", "-q", "--threads", "1", *options]
    pipe = subprocess.PIPE
    process = subprocess.Popen([BINADE, *map(str, args)], stdout=pipe, stderr=pipe)
    wait_for_output(tmp_path, 1000)
    process.send_signal(signal.SIGSTOP)
    with open(tmp_path / "model" / "model-0.safetensors", "r+b") as f:
        f.seek(-100, os.SEEK_END)
        f.write(bytes(100))
    process.send_signal(signal.SIGCONT)
    out, err = process.communicate(timeout=60)
    result = Result(process.returncode, out, err)
    assert_failure(result, 2)
    assert result.err.endswith("model-0.safetensors: the file changed while it was read\n")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_pack_that_was_cut(tmp_path):
    write_large_model(tmp_path / "model", MODEL_NBYTES)
    run_well("pack", tmp_path / "model", "--out", tmp_path / "packed")
    shrink(tmp_path / "packed" / "model-1.safetensors")
    for command in (["verify"], ["info"]):
        assert_failure(run(*command, tmp_path / "packed"), 1)
