"""What every refusal and failure must leave: one sentence, no output, an untouched source."""

import hashlib

from cli_harness import assert_failure, run

HASHED_MAX_NBYTES = 1 << 27


def snapshot(path):
    """What is below a directory: names, kinds, times, and contents unless they are huge."""
    found = {}
    for entry in sorted(path.rglob("*")):
        info = entry.lstat()
        is_hashed = entry.is_file() and entry.stat().st_size <= HASHED_MAX_NBYTES
        content = hashlib.sha256(entry.read_bytes()).digest() if is_hashed else None
        facts = (info.st_size, info.st_mtime_ns) if not entry.is_dir() else ()
        found[entry.relative_to(path)] = (info.st_mode, content, *facts)
    return found


def assert_refused(code, words, *args, place, **kwargs):
    """Runs the command, which must fail with `code` and one sentence that holds all `words`, and
    leave everything below the directory `place` as it is."""
    before = snapshot(place)
    result = run(*args, **kwargs)
    assert_failure(result, code)
    assert result.out == ""
    assert [word for word in words if word not in result.err] == [], result.err
    assert snapshot(place) == before
    return result.err
