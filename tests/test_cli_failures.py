"""What `binade` says and returns when data is wrong, the system fails, or it is stopped; the
progress bar; the Hugging Face cache."""

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import termios

import pytest
from cli_harness import (
    BINADE,
    SHARD,
    Result,
    assert_failure,
    large_model,
    packed_model,
    read_files,
    run,
    run_well,
    tiny_model,
)

# ---- Exit statuses


@pytest.mark.parametrize("args", [("verify",), ("unpack", "--out", "out")])
def test_corrupt_pack(args, tmp_path):
    bad = tmp_path / "bad"
    bad.mkdir()
    for name, data in read_files(packed_model()).items():
        if name == SHARD:
            data = data[:-30000] + bytes([data[-30000] ^ 1]) + data[-29999:]
        (bad / name).write_bytes(data)
    result = run(args[0], bad, *args[1:], cwd=tmp_path)
    assert_failure(result, 1)
    assert result.out == ""
    assert SHARD in result.err
    result = run(args[0], bad, *args[1:], "--json", "-q", cwd=tmp_path)
    assert_failure(result, 1)
    assert result.json["error"]["status"] == "data"
    assert list(tmp_path.iterdir()) == [bad]


def test_lying_header(tmp_path):
    (tmp_path / SHARD).write_bytes(struct.pack("<Q", 1 << 40) + b"{}")
    assert_failure(run("info", tmp_path), 1)


def test_against_something_else(tmp_path):
    for name, data in read_files(tiny_model()).items():
        (tmp_path / name).write_bytes(data.replace(b"tiny", b"tinY"))
    result = run("verify", packed_model(), "--against", tmp_path)
    assert_failure(result, 1)
    assert "config.json" in result.err


def test_environment_failures(tmp_path):
    for args in (("pack", tiny_model()), ("unpack", packed_model())):
        result = run(*args, "--out", "/dev/null/out", "--json")
        assert_failure(result, 2)
        assert result.json["error"]["status"] == "io"
        assert "/dev/null" in result.err
    assert_failure(run("pack", packed_model(), "--out", tmp_path / "out"), 2)
    assert_failure(run("verify", tiny_model()), 2)
    assert_failure(run("unpack", tiny_model(), "--out", tmp_path / "out"), 2)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("extra", [(), ("--json",)])
def test_output_into_a_closed_pipe(extra):
    read_end, write_end = os.pipe()
    os.close(read_end)
    result = run("info", packed_model(), *extra, stdout=write_end)
    os.close(write_end)
    assert_failure(result, 2)


def test_output_to_a_full_device():
    if not os.path.exists("/dev/full"):
        return  # only Linux has it; the closed pipe above takes the same path
    with open("/dev/full", "w") as full:
        assert_failure(run("--help", stdout=full), 2)


def test_closed_standard_streams(tmp_path):
    def close(*fds):
        return lambda: [os.close(fd) for fd in fds]

    assert_failure(run("info", packed_model(), preexec_fn=close(1)), 2)
    assert run("verify", packed_model(), preexec_fn=close(0, 2)).code == 0
    # Messages must not land in a file that happens to get the number of a closed stream.
    out = tmp_path / "out"
    run("unpack", packed_model(), "--out", out, "-v", preexec_fn=close(0, 1, 2))
    assert read_files(out) == read_files(tiny_model())


# ---- The Hugging Face cache


def test_hub_cache(tmp_path):
    commit = "0123456789abcdef0123456789abcdef01234567"
    repo = tmp_path / "hub" / "models--org--tiny"
    snapshot = repo / "snapshots" / commit
    for path in (repo / "blobs", repo / "refs", snapshot):
        path.mkdir(parents=True)
    (repo / "refs" / "main").write_text(commit)
    for name, data in read_files(tiny_model()).items():
        (repo / "blobs" / name).write_bytes(data)
        (snapshot / name).symlink_to(f"../../blobs/{name}")
    by_home = {**os.environ, "HF_HOME": str(tmp_path)}
    by_home.pop("HF_HUB_CACHE", None)
    by_cache = {**by_home, "HF_HOME": "/nowhere", "HF_HUB_CACHE": str(tmp_path / "hub")}
    for env in (by_cache, by_home):
        for extra in ((), ("--revision", "main"), ("--revision=01234567",)):
            result = run_well("info", "org/tiny", "--json", *extra, env=env, cwd=tmp_path)
            assert result.json["path"].endswith(f"snapshots/{commit}")
        assert_failure(run("info", "org/tiny", "--revision", "v9", env=env), 2)
        result = run("info", "org/absent", env=env)
        assert_failure(result, 2)
        assert "hf download org/absent" in result.err
    run_well("pack", "org/tiny", "--out", tmp_path / "out", env=by_cache)
    run_well("verify", tmp_path / "out", "--against", tiny_model())
    result = run_well("verify", tmp_path / "out", "--against", "org/tiny", "--json", env=by_cache)
    assert (result.json["against"], result.json["equal"]) == ("org/tiny", True)
    result = run("verify", tmp_path / "out", "--against", "org/absent", env=by_cache)
    assert_failure(result, 2)
    assert "hf download org/absent" in result.err


# ---- Terminal


def reset_signals():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


class OnTerminal:
    """The command with its standard error on a terminal of `columns` columns."""

    def __init__(self, *args, columns=80, term="xterm"):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.process = subprocess.Popen(
            [BINADE, *map(str, args)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=slave,
            env={**os.environ, "TERM": term},
            preexec_fn=reset_signals,
        )
        os.close(slave)
        self.text = b""

    def read(self):
        """Waits for more text; False at its end."""
        assert select.select([self.master], [], [], 60)[0], "no output for 60 seconds"
        try:
            data = os.read(self.master, 65536)
        except OSError:  # how Linux reports the end
            data = b""
        self.text += data
        return data != b""

    def finish(self):
        while self.read():
            pass
        os.close(self.master)
        return Result(self.process.wait(60), b"", self.text)


@pytest.mark.parametrize("columns", [0, 20, 80, 300])
@pytest.mark.parametrize(("command", "verb"), [("verify", "verifying"), ("info", "measuring")])
def test_progress_bar(command, verb, columns):
    result = OnTerminal(command, packed_model(), columns=columns).finish()
    assert result.code == 0
    erase = "\x1b[K"
    first, *draws, last = result.err.split("\r")
    # Each drawing replaces the one before, and the last drawing is nothing.
    assert (first, last) == ("", erase)
    assert draws
    for draw in draws:
        line = draw.removesuffix(erase)
        assert draw != line
        assert line.startswith(verb)
        assert "\n" not in line
        assert len(line) < (columns or 80)
        if columns != 20:
            assert "% [" in line
            assert " of 144 kB, " in line
            assert "B/s, " in line
            assert line.endswith(" left")


def test_no_progress_bar():
    assert OnTerminal("verify", packed_model(), "-q").finish().err == ""
    assert OnTerminal("verify", packed_model(), "--json").finish().err == ""
    assert OnTerminal("verify", packed_model(), term="dumb").finish().err == ""
    assert run_well("verify", packed_model()).err == ""


def test_lines_are_printed_after_the_bar_is_cleared(tmp_path):
    result = OnTerminal("pack", tiny_model(), "--out", tmp_path / "out", "-v").finish()
    lines = [line for line in result.err.split("\n") if "q_proj" in line]
    assert len(lines) == 1
    assert not lines[0].rpartition("\x1b[K")[2].startswith("packing")


# ---- Signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("command", ["pack", "info"])
def test_signal(command, number, tmp_path):
    args = ["--out", tmp_path / "out"] if command == "pack" else []
    running = OnTerminal(command, large_model(), "--threads", "1", *args)
    running.read()
    running.process.send_signal(number)
    result = running.finish()
    assert result.code == -number
    assert result.err.endswith(f"\x1b[Kbinade: stopped by {number.name}\r\n")
    assert list(tmp_path.iterdir()) == []
    assert {path.name for path in large_model().iterdir()} == {SHARD, "config.json"}


def test_signal_as_json(tmp_path):
    p = subprocess.Popen(
        [BINADE, "pack", large_model(), "--out", tmp_path / "out", "--json", "-v", "--threads=1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=reset_signals,
    )
    assert b"up_proj" in p.stderr.readline()
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=60)
    assert p.returncode == -signal.SIGINT
    assert err.endswith(b"binade: stopped by SIGINT\n")
    error = json.loads(out)["error"]
    assert error == {"status": "cancelled", "message": "stopped by SIGINT"}
    assert list(tmp_path.iterdir()) == []


def test_an_ignored_signal_stays_ignored():
    p = subprocess.Popen(
        [BINADE, "info", large_model(), "-v"],
        stdout=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    p.send_signal(signal.SIGINT)
    out, _ = p.communicate(timeout=120)
    assert p.returncode == 0
    assert b"up_proj" in out
