"""Without memory every command ends with exit status 2 and one sentence, never by a signal; the
output is absent and the source untouched.
"""

import functools
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from checkpoints import read_tree
from cli_harness import assert_failure, run, run_well, work_dir
from faults import SANITIZED, list_hidden, write_small_model
from refusals import snapshot

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="replaces the allocator of glibc"),
    pytest.mark.skipif(SANITIZED, reason="sanitizers have their own allocator"),
]

SHIM = Path(__file__).parent / "shims" / "failing_malloc.c"
COMMANDS = pytest.mark.parametrize("command", ["pack", "unpack", "verify", "info"])
LAST = 10**9


@functools.cache
def build_shim():
    library = work_dir() / "failing_malloc.so"
    words = ["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", SHIM, "-o", library]
    subprocess.run([str(word) for word in words], check=True)
    return library


@functools.cache
def make_place():
    place = work_dir() / "memory"
    write_small_model(place / "model")
    run_well("pack", place / "model", "--out", place / "packed")
    return place


class Job:
    def __init__(self, command):
        self.place = make_place()
        source = self.place / ("model" if command == "pack" else "packed")
        self.out = self.place / "out"
        out = ["--out", self.out] if command in ("pack", "unpack") else ["-v"]
        self.args = [command, source, *out, "--threads", "2"]
        self.before = snapshot(self.place)

    def check(self, result, what, is_left=False):
        """`is_left`: memory that was short to the end may leave the hidden output."""
        assert result.code in (0, 2), (what, result.code, result.err)
        if result.code == 2:
            assert_failure(result, 2)
            assert not self.out.exists(), what
        elif self.args[0] == "pack":
            run_well("verify", self.out, "-q")
        elif self.args[0] == "unpack":
            assert read_tree(self.out) == read_tree(self.place / "model")
        shutil.rmtree(self.out, ignore_errors=True)
        for hidden in list_hidden(self.place):
            assert is_left, what
            shutil.rmtree(self.place / hidden)
        assert snapshot(self.place) == self.before

    def count(self):
        counter = work_dir() / "malloc-count"
        env = {**os.environ, "LD_PRELOAD": build_shim(), "FAILING_MALLOC_COUNT": counter}
        self.check(run(*self.args, env=env), "no fault")
        return int(counter.read_text())

    def fail(self, first, last):
        env = {**os.environ, "LD_PRELOAD": build_shim()}
        env |= {"FAILING_MALLOC_FIRST": str(first), "FAILING_MALLOC_LAST": str(last)}
        result = run(*self.args, env=env)
        self.check(result, (first, last), is_left=last == LAST)
        return result.code


def fail_some(command, most):
    job = Job(command)
    count = job.count()
    assert count > 100
    step = max(1, count // most)
    codes = [job.fail(n, n) for n in range(1, count + 1, step)]
    assert codes.count(2) > len(codes) // 2
    codes = [job.fail(n, LAST) for n in range(1, count + 1, step * 4)]
    assert codes.count(2) > len(codes) // 2


@COMMANDS
def test_allocations_that_fail(command):
    fail_some(command, 40)


@pytest.mark.slow
@COMMANDS
def test_every_allocation(command):
    fail_some(command, 10**6)


@COMMANDS
def test_limited_address_space(command):
    job, codes = Job(command), []
    for mebibytes in (9, 12, 15, 18, 21, 25, 30, 40, 60, 90, 130, 180, 250, 1000):
        limit = mebibytes << 20

        def set_limit(limit=limit):
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

        if run("--version", preexec_fn=set_limit).code != 0:
            continue  # too little to load the program
        result = run(*job.args, preexec_fn=set_limit)
        job.check(result, mebibytes)
        codes.append(result.code)
    # In between either may happen: with more room more threads start, and each wants some of it.
    assert set(codes) == {0, 2}
    assert codes[0] == 2
    assert codes[-1] == 0
