"""`binade doctor`: which Python it hands over to, with what, and what it says where there is none.

The report itself is tested in test_mlx_doctor.py; here scripts stand in for Python.
"""

import os
import shutil
import stat
import sys

import pytest
from cli_harness import BINADE, NASTY, assert_failure, run, run_well

# Answers the probe with ANSWER, and then says how it is called.
SCRIPT = """#!/bin/sh
if [ "$1" = -c ]; then
    {answer}
else
    echo "{name}: $*"
    echo "threads=$BINADE_NUM_THREADS safe=$PYTHONSAFEPATH"
    exit {status}
fi
"""


def make_python(folder, name, answer=":", status=0):
    folder.mkdir(exist_ok=True)
    path = folder / "python3"
    path.write_text(SCRIPT.format(name=name, answer=answer, status=status))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def env_of(folder):
    return {"PATH": f"{folder}:/usr/bin:/bin"}


@pytest.fixture
def version():
    report = run_well("--version", "--json").json
    return f"{report['version']} ({report['cpu']} kernels)"


def test_help():
    result = run_well("doctor", "--help")
    assert result.out.startswith("Usage: binade doctor [options]\n")
    for word in ("--threads", "--json", "--quiet", "--verbose", "Exit status: 0", "Examples:\n"):
        assert word in result.out
    assert max(map(len, result.out.splitlines())) <= 90
    assert run_well("help", "doctor").out == result.out
    assert "binade doctor " in run_well("--help").out


@pytest.mark.parametrize(
    "line",
    ["doctor X", "doctor --out X", "doctor --revision X", "doctor --threads 0", "doctor -q -v"],
)
def test_bad_line(line, tmp_path):
    make_python(tmp_path, "path")
    result = run(*line.split(), env=env_of(tmp_path))
    assert_failure(result, 2)
    assert result.out == ""
    result = run("--json", *line.split(), env=env_of(tmp_path))
    assert result.json["error"]["status"] == "usage"


def test_empty_argument():
    result = run("doctor", "")
    assert_failure(result, 2)
    assert "takes no argument" in result.err


@pytest.mark.parametrize("status", [0, 1, 2])
def test_hands_over_to_python(status, tmp_path, version):
    make_python(tmp_path, "path", status=status)
    result = run("doctor", env=env_of(tmp_path))
    assert result.code == status
    assert result.out.splitlines() == [
        f"path: -m binade.mlx.doctor --command {version}",
        "threads= safe=1",
    ]
    assert result.err == ""


def test_passes_options_on(tmp_path, version):
    make_python(tmp_path, "path")
    env = env_of(tmp_path)
    out = run_well("doctor", "--json", "-q", "--threads", "3", env=env).out.splitlines()
    assert out[0] == f"path: -m binade.mlx.doctor --command {version} --json --quiet"
    assert out[1].startswith("threads=3 ")
    assert "threads=256 " in run_well("doctor", "--threads=1000", env=env).out
    assert run_well("doctor", "-v", env=env).out == run_well("doctor", env=env).out


def test_python_beside_the_command_comes_first(tmp_path):
    make_python(tmp_path / "path", "path")
    make_python(tmp_path / "bin", "beside")
    command = shutil.copy(BINADE, tmp_path / "bin")
    env = env_of(tmp_path / "path")
    assert run_well("doctor", binary=command, env=env).out.startswith("beside: ")
    link = tmp_path / "linked"
    link.symlink_to(command)
    assert run_well("doctor", binary=link, env=env).out.startswith("beside: ")
    # One that lacks the package, or does not run at all, gives way.
    make_python(tmp_path / "bin", "beside", answer="echo no package")
    assert run_well("doctor", binary=command, env=env).out.startswith("path: ")
    (tmp_path / "bin" / "python3").write_bytes(b"\x7fELF")
    assert run_well("doctor", binary=command, env=env).out.startswith("path: ")
    (tmp_path / "bin" / "python3").chmod(0o644)
    assert run_well("doctor", binary=command, env=env).out.startswith("path: ")


def assert_no_package(result, version, reason):
    assert_failure(result, 2)
    assert result.out == f"binade {version}\n"
    assert f" cannot import binade.mlx, which checks products: {reason} (" in result.err
    assert "pip install 'binade[cpu]'" in result.err


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("echo needs MLX", "needs MLX"),
        ("echo first; echo second; exit 1", "first"),
        ("exit 1", "it ends when binade.mlx is imported"),
        ("kill -SEGV $$", "it ends when binade.mlx is imported"),
    ],
)
def test_python_without_the_package(answer, reason, tmp_path, version):
    make_python(tmp_path, "path", answer=answer)
    assert_no_package(run("doctor", env=env_of(tmp_path)), version, reason)
    result = run("doctor", "--json", env=env_of(tmp_path))
    assert_failure(result, 2)
    assert reason in result.json["error"]["message"]
    assert run("doctor", "-q", env=env_of(tmp_path)).out == ""


def test_no_python(tmp_path, version):
    result = run("doctor", env={"PATH": str(tmp_path)})
    assert_no_package(result, version, "No such file or directory")


def test_reasons_are_safe_on_a_terminal(tmp_path):
    (tmp_path / "reason").write_bytes(NASTY.replace("\n", "").encode() + b"\xff" * 100000)
    make_python(tmp_path, "path", answer=f"cat {tmp_path}/reason")
    assert_failure(run("doctor", env=env_of(tmp_path)), 2)


def test_output_that_cannot_be_written(tmp_path):
    make_python(tmp_path, "path", answer="echo no package")
    with open("/dev/full", "wb") as full:
        result = run("doctor", env=env_of(tmp_path), stdout=full)
    assert result.code == 2
    assert "cannot write to standard output" in result.err


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python cannot leave the folder out")
def test_code_in_the_current_folder_is_not_run(tmp_path):
    """As that may be a checkpoint from anywhere."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to(sys.executable)
    for folder in ("binade", "binade/mlx"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").write_text("")
    (tmp_path / "binade/mlx/doctor.py").write_text("print('planted')")
    env = {**env_of(tmp_path / "bin"), "HOME": os.environ.get("HOME", "/")}
    result = run("doctor", env=env, cwd=tmp_path)
    assert "planted" not in result.out + result.err
    # The other way round it would run: the plant is one that works.
    planted = [sys.executable, "-m", "binade.mlx.doctor"]
    assert run(*planted[1:], binary=planted[0], cwd=tmp_path).out == "planted\n"
