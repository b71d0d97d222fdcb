"""Runs the command while system calls fail, by strace, and checks what is left."""

import os
import re
import shutil
import subprocess

import numpy as np
from checkpoints import make_tensor, make_weight, read_tree, write_index, write_safetensors
from cli_harness import BINADE, Result, assert_failure, run_well, work_dir
from refusals import snapshot

SANITIZED = os.environ.get("BINADE_SANITIZED") == "1"
# The leak checker of the address sanitizer cannot run while strace does.
ENV = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}


def require_strace():
    assert shutil.which("strace"), "strace is needed, and must be installed"


class Calls(dict):
    """{system call: the ordinals of those made once the program is loaded}. "create" are those of
    openat that create files, "open" those that open files in the tests' directory."""

    def __init__(self, log):
        seen, loaded, work = {}, False, str(work_dir())
        for line in log.read_text(errors="replace").splitlines():
            call = re.match(r"\d+ +([a-z0-9_]+)\(", line)
            if not call or " = " not in line:
                continue
            name = call[1]
            seen[name] = seen.get(name, 0) + 1
            loaded = loaded or (work in line and name != "execve")
            if not loaded:
                continue
            self.setdefault(name, []).append(seen[name])
            if name == "openat" and work in line:
                kind = "create" if "O_CREAT" in line else "open"
                self.setdefault(kind, []).append(seen[name])


def trace(args, log, *injects):
    """Logs every call, or only those that are made to fail."""
    calls = ",".join(inject.partition(":")[0] for inject in injects) or "all"
    words = ["strace", "-f", "-qq", "-o", log, "-s", "200", "-e", f"trace={calls}"]
    for inject in injects:
        words += ["-e", f"inject={inject}"]
    words = [str(word) for word in [*words, "--", BINADE, *args]]
    p = subprocess.run(words, capture_output=True, check=False, env=ENV, timeout=120)
    return Result(p.returncode, p.stdout, p.stderr)


class Job:
    """One command on a small model of its own, with one thread, so that every run makes the same
    calls. `place` holds the model and the pack, and the output for a moment."""

    def __init__(self, command, *options):
        self.place = work_dir() / f"faults-{command}{''.join(options)}"
        if not self.place.exists():
            write_small_model(self.place / "model")
            run_well("pack", self.place / "model", "--out", self.place / "packed")
        self.source = self.place / ("model" if command == "pack" else "packed")
        self.out = self.place / "out"
        self.log = work_dir() / "strace.log"
        self.args = [command, self.source, "--out", self.out, "-q", "--threads", "1", *options]
        self.before = snapshot(self.place)

    def list_calls(self):
        assert trace(self.args, self.log).code == 0
        self.remove_out()
        return Calls(self.log)

    def remove_out(self):
        shutil.rmtree(self.out)
        assert snapshot(self.place) == self.before

    def assert_complete(self):
        if self.args[0] == "pack":
            run_well("verify", self.out, "--against", self.source, "-q")
        else:
            assert read_tree(self.out) == read_tree(self.place / "model")

    def fail(self, inject, codes=(2,)):
        """Runs with a fault; returns the exit status. Status 0 means that the fault did not matter,
        and then the output is whole; otherwise there is none."""
        result = trace(self.args, self.log, inject)
        assert result.code in codes, (inject, result.code, result.err)
        if result.code == 0:
            self.assert_complete()
            self.remove_out()
        else:
            assert_failure(result, result.code)
            assert snapshot(self.place) == self.before, inject
        return result.code


def write_small_model(path):
    rng = np.random.default_rng(7)
    path.mkdir(parents=True)
    shards = {
        "x.safetensors": [
            make_weight("embed_tokens.weight", (40, 300), rng),
            make_tensor("norm", "F32", (7,), rng),
        ],
        "y.safetensors": [make_weight("lm_head.weight", (30, 500), rng, "geometric")],
    }
    for name, tensors in shards.items():
        write_safetensors(path / name, tensors, trailing=b"behind")
    write_index(path, shards)
    (path / "config.json").write_text("{}")
    (path / "sub" / "more").mkdir(parents=True)
    (path / "sub" / "more" / "notes.txt").write_text("notes")


def write_large_model(path, nbytes):
    """Tensors of 2 MB of real noise, and as much again that is carried."""
    rng = np.random.default_rng(8)
    path.mkdir(parents=True)
    shards = {}
    for s in range(2):
        shards[f"model-{s}.safetensors"] = [
            make_weight(f"model.layers.{s}.{i}.mlp.up_proj.weight", (1024, 1024), rng)
            if i % 4
            else make_tensor(f"carried.{s}.{i}", "U8", (1 << 21,), rng)
            for i in range(nbytes >> 22)
        ]
        write_safetensors(path / f"model-{s}.safetensors", shards[f"model-{s}.safetensors"])
    write_index(path, shards)
    (path / "config.json").write_text("{}")


def list_hidden(place):
    return [path.name for path in place.iterdir() if path.name.startswith(".")]
