"""Outputs that may not be where they are asked for: nothing is written, removed or changed."""

import fcntl
import functools
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from checkpoints import SHARD, make_tensor, make_weight, read_tree, write_safetensors
from cli_harness import BINADE, run_well
from refusals import assert_refused, snapshot

COMMANDS = pytest.mark.parametrize("command", ["pack", "unpack"])
MANIFEST = "binade_pack.json"


def write_model(path):
    rng = np.random.default_rng(3)
    path.mkdir(parents=True)
    tensors = [
        make_weight("embed_tokens.weight", (30, 200), rng),
        make_tensor("a", "I64", (5,), rng),
    ]
    write_safetensors(path / SHARD, tensors)
    (path / "config.json").write_text("{}")
    return path


@pytest.fixture
def source(command, tmp_path):
    """What the command reads, in a directory of its own; its parent holds no packed data."""
    path = tmp_path / "place" / "source"
    if command == "pack":
        return write_model(path)
    run_well("pack", write_model(tmp_path / "model"), "--out", path)
    return path


def refuse(command, source, out, *options, code=2, words=(), place=None, **kwargs):
    place = source.parent if place is None else place
    return assert_refused(
        code, words, command, source, "--out", out, *options, place=place, **kwargs
    )


# ---- The output and the source


@COMMANDS
def test_out_is_the_source(command, source):
    for options in [[], ["--force"]] if command == "pack" else [[]]:
        for out in (source, f"{source}/", f"{source}/.", source / ".." / "source"):
            refuse(command, source, out, *options, words=["source"])
        refuse(command, source, ".", *options, cwd=source)


@COMMANDS
def test_out_inside_the_source(command, source):
    (source / "sub").mkdir()
    for out in ("new", "sub/new", "new/newer", "sub"):
        refuse(command, source, source / out, words=["inside"])
        refuse(command, source, out, words=["inside"], cwd=source)


@COMMANDS
def test_out_around_the_source(command, source):
    """Even if what is around it looks like a pack that may be replaced."""
    outer = source.parent
    refuse(command, source, outer, place=outer.parent)
    (outer / MANIFEST).write_text('{"binade":{"quant_method":"binade","version":"2","tile":128}}')
    for options in [[], ["--force"]] if command == "pack" else [[]]:
        refuse(command, source, outer, *options, place=outer.parent)
        refuse(command, source, "..", *options, place=outer.parent, cwd=source)


@COMMANDS
def test_through_links(command, source):
    (source / "sub").mkdir()
    (source.parent / "link").symlink_to("source")
    (source.parent / "sublink").symlink_to("source/sub")
    (source.parent / "nowhere").symlink_to("source/nothing")
    link = source.parent / "link"
    for options in [[], ["--force"]] if command == "pack" else [[]]:
        for out in ("link", "link/", "link/new", "sublink", "sublink/new", "nowhere"):
            refuse(command, source, source.parent / out, *options)
            refuse(command, link, source.parent / out, *options, place=source.parent)
        refuse(command, link, source, *options)
        refuse(command, link, source / "new", *options)


@COMMANDS
def test_links_that_lead_elsewhere_are_good(command, source, tmp_path):
    (tmp_path / "far").mkdir()
    (source.parent / "far").symlink_to(tmp_path / "far")
    (source.parent / "link").symlink_to(source)
    run_well(command, source.parent / "link", "--out", source.parent / "far" / "out")
    assert [path.name for path in (tmp_path / "far").iterdir()] == ["out"]


# ---- What stands there already


@COMMANDS
@pytest.mark.parametrize("kind", ["file", "hidden file", "directory", "link to a file"])
def test_out_exists(command, source, kind):
    out = source.parent / "out"
    if kind == "file":
        out.write_text("precious")
    elif kind == "link to a file":
        out.symlink_to(source / "config.json")
    else:
        out.mkdir()
        (out / (".precious" if kind == "hidden file" else "precious")).mkdir()
    refuse(command, source, out, words=["out"])
    if command == "pack":
        refuse(command, source, out, "--force")


@COMMANDS
def test_empty_directory_is_filled(command, source):
    out = source.parent / "out"
    out.mkdir()
    run_well(command, source, "--out", out)
    assert read_tree(out)


@COMMANDS
def test_out_without_a_name(command, source):
    for out in ("", "/"):
        refuse(command, source, out)


@COMMANDS
def test_out_below_a_file(command, source):
    (source.parent / "file").write_text("precious")
    refuse(command, source, source.parent / "file" / "out", words=["file: is not a directory"])
    refuse(command, source, source.parent / "file" / "more" / "out")


@pytest.mark.parametrize("text", ["{}", "", '{"binade":{"quant_method":"other"}}'])
def test_force_replaces_packs_only(text, tmp_path):
    model, out = write_model(tmp_path / "model"), tmp_path / "out"
    write_model(out)
    (out / MANIFEST).write_text(text)
    # A manifest that is no JSON is wrong data; a directory without a mark is somebody's.
    refuse("pack", model, out, "--force", code=2 if text else 1)


def test_force_replaces_a_pack(tmp_path):
    model, out = write_model(tmp_path / "model"), tmp_path / "out"
    run_well("pack", model, "--out", out, "--no-hash")
    (out / "old").write_text("old")
    refuse("pack", model, out)
    run_well("pack", model, "--out", out, "--force")
    run_well("verify", out, "--against", model)
    assert not (out / "old").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "out"]


def test_force_keeps_the_old_until_the_new_is_whole(tmp_path):
    model, out = write_model(tmp_path / "model"), tmp_path / "out"
    run_well("pack", model, "--out", out)
    (model / SHARD).write_bytes((model / SHARD).read_bytes()[:-1])
    refuse("pack", model, out, "--force", code=1)
    run_well("verify", out)


# ---- A pack of a pack


@pytest.mark.parametrize("options", [[], ["--no-hash"], ["--format", "1"]])
def test_pack_of_a_pack(options, tmp_path):
    packed = tmp_path / "packed"
    run_well("pack", write_model(tmp_path / "model"), "--out", packed, *options)
    refuse("pack", packed, tmp_path / "out", words=["already"])


def test_pack_of_an_old_pack(tmp_path):
    """Its mark is in config.json."""
    packed = tmp_path / "packed"
    run_well("pack", write_model(tmp_path / "model"), "--out", packed, "--no-hash")
    (packed / MANIFEST).unlink()
    mark = {"quant_method": "binade", "version": "2", "tile": 128}
    (packed / "config.json").write_text(json.dumps({"quantization_config": mark}))
    run_well("verify", packed)
    refuse("pack", packed, tmp_path / "out", words=["already"])


def test_unpack_and_verify_what_is_no_pack(tmp_path):
    model = write_model(tmp_path / "model")
    refuse("unpack", model, tmp_path / "out")
    assert_refused(2, [str(model)], "verify", model, place=tmp_path)


# ---- Space and permission


@functools.cache
def find_unshare():
    """The words that run a command where it may mount."""
    for words in (
        ["unshare", "-m"],
        ["unshare", "-m", "-U", "-r"],
        ["sudo", "-n", "unshare", "-m"],
    ):
        script = "mount -t tmpfs -o size=1m tmpfs /mnt"
        if shutil.which(words[0]):
            p = subprocess.run([*words, "sh", "-c", script], capture_output=True, check=False)
            if p.returncode == 0:
                return words
    raise AssertionError("neither root nor a user namespace may mount a file system here")


def run_on_small_disk(disk, *args):
    """Runs the command with a file system of 1 MiB at `disk`; returns its exit status, what it said
    and what it left there."""
    script = 'mount -t tmpfs -o size=1m tmpfs "$1" || exit 99; out=$1; shift; "$@"; code=$?;'
    script += ' find "$out" -mindepth 1 >&2; exit $code'
    words = [*find_unshare(), "sh", "-c", script, "sh", disk, BINADE, *args]
    p = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    return p.returncode, p.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="mounts a file system of its own")
@COMMANDS
def test_too_little_space(command, tmp_path):
    model, disk = tmp_path / "model", tmp_path / "disk"
    model.mkdir()
    disk.mkdir()
    tensor = make_tensor("carried", "U8", (1_200_000,), np.random.default_rng(4))
    write_safetensors(model / SHARD, [tensor])
    packed = tmp_path / "packed"
    run_well("pack", model, "--out", packed)
    before = snapshot(tmp_path)
    source = model if command == "pack" else packed
    code, said = run_on_small_disk(disk, command, source, "--out", disk / "out")
    assert code == 2
    assert said.count("\n") == 1
    assert "are free" in said
    assert str(disk) in said
    assert snapshot(tmp_path) == before


@COMMANDS
def test_place_that_may_not_be_written(command, source):
    place = source.parent / "locked"
    place.mkdir(mode=0o555)
    if os.getuid() == 0:
        # Root may write anywhere but where nobody may.
        refuse(command, source, "/proc/out", words=["/proc"])
    else:
        refuse(command, source, place / "out", words=["locked"])


@COMMANDS
def test_limit_on_file_sizes(command, source):
    """The system's signal for it must not kill the process before it has cleaned up."""

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    # Directories that were made on the way are removed too, those that were there stay.
    (source.parent / "there").mkdir()
    for out in ("out", "a/out", "there/a/b/out", "there//a/./out"):
        refuse(command, source, source.parent / out, words=["too large"], preexec_fn=limit)
        refuse(command, source, out, words=["too large"], preexec_fn=limit, cwd=source.parent)


def test_names_that_are_too_long(tmp_path):
    model = write_model(tmp_path / "model")
    refuse("pack", model, tmp_path / ("x" * 300), words=["xxx: cannot be made"])
    # These leave no room for what the hidden name adds.
    for name in ("x" * 240, "x" * 255, "é" * 127, "x" + "é" * 127):
        run_well("pack", model, "--out", tmp_path / name)
        run_well("verify", tmp_path / name)
        shutil.rmtree(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


# ---- What killed processes left


@pytest.fixture
def stale(tmp_path):
    """What a killed `pack --out tmp_path/out` leaves."""
    path = tmp_path / ".out.binade-partial-a1B2c3"
    (path / "sub").mkdir(parents=True)
    (path / SHARD).write_text("half")
    return path


def test_stale_output_is_removed(stale, tmp_path):
    kept = [".out.partial-backup", ".out.binade-partial-backups", ".other.binade-partial-a1B2c3"]
    for name in kept:
        (tmp_path / name).mkdir()
    (tmp_path / ".out.binade-partial-a1B2c4").symlink_to("model")
    run_well("pack", write_model(tmp_path / "model"), "--out", tmp_path / "out")
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {*kept, ".out.binade-partial-a1B2c4", "model", "out"}


def test_locked_output_is_kept(stale, tmp_path):
    before = snapshot(stale)
    fd = os.open(stale, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    run_well("pack", write_model(tmp_path / "model"), "--out", tmp_path / "out")
    os.close(fd)
    assert snapshot(stale) == before


def test_stale_output_of_another_user_is_kept(stale, tmp_path):
    if os.getuid() == 0:
        os.chown(stale, 65534, 65534)
    else:
        return  # nobody else's directory can be made here
    before = snapshot(stale)
    run_well("pack", write_model(tmp_path / "model"), "--out", tmp_path / "out")
    assert snapshot(stale) == before


def test_a_place_that_somebody_has_locked(tmp_path):
    """Locks on the directory around the output, as of a script's own, do not matter."""
    fd = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    run_well("pack", write_model(tmp_path / "model"), "--out", tmp_path / "out")
    os.close(fd)


def test_many_at_once(tmp_path):
    """None takes what another has just made for stale."""
    model = write_model(tmp_path / "model")
    for _ in range(4):
        args = [BINADE, "pack", str(model), "--out", str(tmp_path / "out"), "--threads", "1"]
        pipe = subprocess.PIPE
        processes = [subprocess.Popen(args, stdout=pipe, stderr=pipe) for _ in range(12)]
        said = [process.communicate(timeout=60)[1] for process in processes]
        assert sorted(process.returncode for process in processes) == [0] + [2] * 11
        for text in said:
            assert text == b"" or b"not empty" in text
        run_well("verify", tmp_path / "out")
        shutil.rmtree(tmp_path / "out")
        assert [path.name for path in tmp_path.iterdir()] == ["model"]


# ---- What could not be replaced at the end


@pytest.mark.skipif(sys.platform != "linux", reason="mounts a file system of its own")
@COMMANDS
def test_out_is_a_mount_point(command, source):
    disk = source.parent / "disk"
    disk.mkdir()
    before = snapshot(source.parent)
    code, said = run_on_small_disk(disk, command, source, "--out", disk)
    assert code == 2
    assert said.count("\n") == 1
    assert "a file system is mounted there" in said
    assert snapshot(source.parent) == before


@COMMANDS
def test_out_of_another_user_in_a_sticky_directory(command, source):
    """As in a shared /tmp: renaming over it is not allowed."""
    if os.getuid() != 0:
        return  # nobody else's directory can be made here
    with tempfile.TemporaryDirectory(prefix="binade-sticky-") as name:
        place = Path(name)
        shutil.copytree(source, place / "source")
        shutil.copy(BINADE, place / "binade")
        place.chmod(0o1777)
        (place / "out").mkdir()
        words = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        words += [place / "binade", command, place / "source", "--out"]
        p = subprocess.run([*words, place / "out"], capture_output=True, text=True, check=False)
        assert p.returncode == 2
        assert "belongs to another user" in p.stderr
        assert list((place / "out").iterdir()) == []
        os.chown(place / "out", 65534, 65534)
        subprocess.run([*words, place / "out"], capture_output=True, check=True)
