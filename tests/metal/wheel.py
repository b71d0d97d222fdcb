"""The macOS wheel of the MLX that is matched: sources of its Metal kernels, and the compiled ones.

It is fetched by pip and stays below build/. Nothing of it is in this repository but names of
functions, their template arguments, and the order of their buffers.
"""

import subprocess
import sys
import zipfile

from sources import BUILD

VERSION = "0.32.2"
PLATFORM = "macosx_15_0_arm64"
NAME = f"mlx_metal-{VERSION}-py3-none-{PLATFORM}.whl"
FOLDER = BUILD / f"wheel-{VERSION}"
WHEEL = FOLDER / "mlx" / "include"
METALLIB = FOLDER / "mlx" / "lib" / "mlx.metallib"


def fetch():
    """Unpacks the wheel, once."""
    done = FOLDER / "unpacked"
    if done.exists():
        return
    BUILD.mkdir(parents=True, exist_ok=True)
    if not (BUILD / NAME).exists():
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
             "--no-deps", "--only-binary=:all:", f"--platform={PLATFORM}",
             "--python-version=3.11", "--dest", BUILD, f"mlx-metal=={VERSION}"],
            check=True,
        )  # fmt: skip
    with zipfile.ZipFile(BUILD / NAME) as wheel:
        wanted = [
            n for n in wheel.namelist()
            if n.startswith("mlx/include/mlx/backend/metal/kernels/") or n.endswith(".metallib")
        ]  # fmt: skip
        wheel.extractall(FOLDER, wanted)
    done.touch()
