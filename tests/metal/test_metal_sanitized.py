"""Kernels under clang's sanitizers, which see arrays that no other check sees: a thread's own.
`./run test metal` runs most other tests under them too."""

import os
import subprocess
import sys

from compiling import sanitizer_library
from sources import ROOT


def run_control(index):
    environment = {
        **os.environ,
        "METAL_SANITIZE": "1",
        "LD_PRELOAD": sanitizer_library(),
        # Python keeps memory until it ends.
        "ASAN_OPTIONS": "detect_leaks=0",
    }
    script = ROOT / "tests/metal/sanitized_control.py"
    command = [sys.executable, script, str(index)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_an_array_of_a_thread():
    inside = run_control(7)
    assert inside.returncode == 0, inside.stderr
    assert inside.stdout == "sum 42\n"
    outside = run_control(8)
    assert outside.returncode != 0
    assert "private_array.metal" in outside.stderr
    assert "out of bounds" in outside.stderr or "stack-buffer" in outside.stderr
