"""The library builds with one compiler line; an installed tree serves pkg-config and CMake."""

import ctypes
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BUILD = Path(os.environ["BINADE_LIB"]).parent
VERSION = "1.0.0"

PROGRAM = """
#include <binade.h>
#include <stdio.h>
int main(void) { return puts(binade_version()) < 0 || binade_cpu() == NULL; }
"""


def run(command: list, **options) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **options,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}"
    return done.stdout


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "program.c"
    path.write_text(PROGRAM)
    return path


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    """An installed tree, moved after installation: nothing in it may name where it was made."""
    folder = tmp_path_factory.mktemp("installed")
    run(["cmake", "--install", BUILD, "--prefix", folder / "first"])
    return (folder / "first").rename(folder / "moved")


def library_folder(prefix: Path) -> Path:
    (header,) = prefix.rglob("binade.pc")
    return header.parent.parent


def run_program(path: Path, folder: Path) -> None:
    search = {"LD_LIBRARY_PATH": str(folder), "DYLD_LIBRARY_PATH": str(folder)}
    assert run([path], env={**os.environ, **search}).startswith(VERSION)


def test_one_line_builds_the_library(program, tmp_path):
    """The one in CONTRIBUTING.md."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    line = re.search(r"^    (cc (?:.*\\\n)*.*)", text, re.MULTILINE)[1].replace("\\\n", "")
    library = tmp_path / "libbinade.so"
    line = line.replace(library.name, str(library)) + " -Wall -Wextra -Werror "
    line += run(["pkg-config", "--cflags", "--libs", "libcrypto", "libxxhash"])
    run(["sh", "-c", line], cwd=ROOT)
    assert not hasattr(ctypes.CDLL(str(library)), "progress_open"), "should not be exported"
    command = f"cc -std=c11 -Iinclude {program} -L{tmp_path} -lbinade -o {tmp_path}/out"
    run(command.split(), cwd=ROOT)
    run_program(tmp_path / "out", tmp_path)


def test_installed_files(prefix):
    names = {str(path.relative_to(prefix)) for path in prefix.rglob("*") if path.is_file()}
    for name in ("bin/binade", "include/binade.h", "share/man/man1/binade.1"):
        assert name in names
    for name in ("libbinade.a", "pkgconfig/binade.pc", "cmake/binade/binadeConfig.cmake"):
        assert any(found.endswith("/" + name) for found in names), f"{name} is not in {names}"
    assert run([prefix / "bin/binade", "--version"]).startswith("binade 1.0.0.dev0")


@pytest.mark.parametrize("static", [False, True], ids=["shared", "static"])
def test_pkg_config(prefix, program, tmp_path, static):
    folder = library_folder(prefix)
    env = {**os.environ, "PKG_CONFIG_PATH": f"{folder}/pkgconfig"}
    query = ["pkg-config", "--cflags", "--libs", *(["--static"] if static else []), "binade"]
    flags = shlex.split(run(query, env=env))
    if static:
        flags = [str(folder / "libbinade.a") if flag == "-lbinade" else flag for flag in flags]
    run(["cc", "-std=c11", "-Wall", "-Werror", program, *flags, "-o", tmp_path / "out"])
    run_program(tmp_path / "out", folder)


def test_cmake_package(prefix, program, tmp_path):
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.22)\n"
        "project(user C)\n"
        f"find_package(binade {VERSION} REQUIRED)\n"
        "add_executable(out program.c)\n"
        "target_link_libraries(out PRIVATE binade::binade)\n"
    )
    run(["cmake", "-S", tmp_path, "-B", tmp_path / "b", f"-DCMAKE_PREFIX_PATH={prefix}"])
    run(["cmake", "--build", tmp_path / "b"])
    run_program(tmp_path / "b/out", library_folder(prefix))


def test_header_compiles_as_cpp(program):
    line = "c++ -fsyntax-only -Wall -Wextra -Werror -xc++"
    run([*line.split(), f"-I{ROOT}/include", program])
