"""Whatever call to the system fails, `pack` and `unpack` end with exit status 2 and one sentence,
the output is absent, nothing is left beside it, and the source is untouched.
"""

import shutil
import sys

import pytest
from cli_harness import run_well
from faults import SANITIZED, Calls, Job, list_hidden, require_strace, trace

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="strace is for Linux")

COMMANDS = pytest.mark.parametrize("command", ["pack", "unpack"])
QUICK_MAX = 60  # faults tried in one test unless it is slow
WRITING = ["pwrite64", "fsync", "ftruncate", "rename", "mkdir"]
READING = ["pread64", "getdents64", "newfstatat", "access", "statfs", "readlink", "chmod", "flock"]


def setup_module():
    require_strace()


def choose(ordinals, most):
    """At most `most` of them, evenly, the first and the last among them."""
    ordinals = list(ordinals)
    if len(ordinals) <= most:
        return ordinals
    return [ordinals[i * (len(ordinals) - 1) // (most - 1)] for i in range(most)]


def fail_each(job, name, code, ordinals, codes=(2,)):
    return [job.fail(f"{name}:error={code}:when={n}", codes) for n in ordinals]


def fail_writing(command, code, most):
    job = Job(command)
    calls = job.list_calls()
    for name in WRITING:
        ordinals = calls.get(name, [])
        assert ordinals or (name, command) == ("ftruncate", "pack"), name
        # Making a directory that is there already may fail.
        codes = (0, 2) if name == "mkdir" else (2,)
        found = fail_each(job, name, code, choose(ordinals, most), codes)
        assert 2 in found or not ordinals
    assert len(calls["create"]) >= 5
    fail_each(job, "openat", code, choose(calls["create"], most))
    assert not {"write", "fdatasync", "copy_file_range", "fallocate"} & calls.keys()


@COMMANDS
@pytest.mark.parametrize("code", ["ENOSPC", "EIO"])
def test_writing(command, code):
    fail_writing(command, code, QUICK_MAX // 3)


@pytest.mark.slow
@COMMANDS
@pytest.mark.parametrize("code", ["ENOSPC", "EIO", "EDQUOT", "EROFS"])
def test_every_write(command, code):
    fail_writing(command, code, 10**6)


@COMMANDS
def test_a_disk_that_stays_full(command):
    job = Job(command)
    for n in choose(job.list_calls()["pwrite64"], 6):
        job.fail(f"pwrite64:error=ENOSPC:when={n}+")


@COMMANDS
def test_interrupted_calls_go_on(command):
    job = Job(command)
    calls = job.list_calls()
    for name in ("pwrite64", "pread64", "fsync"):
        assert job.fail(f"{name}:error=EINTR:when={calls[name][0]}+2", (0,)) == 0


@COMMANDS
def test_reading(command):
    job = Job(command)
    calls = job.list_calls()
    assert len(calls["pread64"]) > 10
    for name in READING:
        codes = (2,) if name == "pread64" else (0, 1, 2)
        fail_each(job, name, "EIO", choose(calls.get(name, []), QUICK_MAX // 4), codes)
    assert len(calls["open"]) > 5
    fail_each(job, "openat", "EIO", choose(calls["open"], QUICK_MAX // 4), (0, 2))
    fail_each(job, "openat", "EMFILE", choose(calls["open"], QUICK_MAX // 4), (0, 2))


@pytest.mark.skipif(SANITIZED, reason="sanitizers need memory themselves")
@COMMANDS
def test_no_more_memory(command):
    job = Job(command)
    for n in choose(job.list_calls()["mmap"], QUICK_MAX // 4):
        job.fail(f"mmap:error=ENOMEM:when={n}+", (0, 2))


# ---- Replacing a pack


@pytest.mark.parametrize("code", ["EINVAL", "ENOSYS"])
def test_force_where_directories_cannot_be_exchanged(code):
    job = Job("pack")
    run_well(*job.args, "--no-hash")
    (job.out / "old").write_text("old")
    args = [*job.args, "--force"]
    assert trace(args, job.log, f"renameat2:error={code}").code == 0
    job.assert_complete()
    assert not (job.out / "old").exists()
    assert list_hidden(job.place) == []
    job.remove_out()


def test_force_that_fails_keeps_the_old():
    job = Job("pack")
    run_well(*job.args, "--no-hash")
    (job.out / "old").write_text("old")
    args = [*job.args, "--force"]
    assert trace(args, job.log).code == 0
    calls = Calls(job.log)
    shutil.rmtree(job.out)
    run_well(*job.args, "--no-hash")
    (job.out / "old").write_text("old")
    cannot_exchange = "renameat2:error=EINVAL"
    faults = [[f"fsync:error=EIO:when={n}"] for n in calls["fsync"]]
    faults += [[cannot_exchange, f"rename:error=EIO:when={n}"] for n in (1, 2)]
    faults += [["pwrite64:error=ENOSPC:when=9"]]
    for fault in faults:
        assert trace(args, job.log, *fault).code == 2, fault
        assert (job.out / "old").exists()
        run_well("verify", job.out)
        assert list_hidden(job.place) == []
    job.remove_out()
