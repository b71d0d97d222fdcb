"""What cannot be loaded for MLX: one sentence in an exception of a documented type.

No memory stays taken and no file open.
"""

import gc
import json
import os
import shutil
import subprocess
import sys

import pytest

mx = pytest.importorskip("mlx.core")

import binade  # noqa: E402
import mlx_running as run  # noqa: E402
from binade.mlx import r4  # noqa: E402
from binade.mlx.errors import ModelError  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(scope="module", autouse=True)
def _files():
    yield
    run.forget_all()


@pytest.fixture
def broken(tmp_path):
    """A copy of a pack, to be broken."""
    path = tmp_path / "broken"
    shutil.copytree(run.case("llama").packed, path)
    return path


def open_files():
    return {
        os.readlink(f"/proc/self/fd/{fd}")
        for fd in os.listdir("/proc/self/fd")
        if os.path.lexists(f"/proc/self/fd/{fd}")
    }


def assert_fails(kind, match, path, **options):
    gc.collect()
    mx.clear_cache()
    memory = mx.get_active_memory()
    with pytest.raises(kind, match=match) as caught:
        r4.load(path, **options)
    sentence = str(caught.value)
    assert sentence.isprintable()
    assert not sentence.endswith(".")
    del caught
    gc.collect()
    assert mx.get_active_memory() <= memory
    if sys.platform == "linux":
        assert not [file for file in open_files() if str(path) in file]


def edit_config(path, **changes):
    file = path / "config.json"
    config = {**json.loads(file.read_text()), **changes}
    file.write_text(json.dumps({k: v for k, v in config.items() if v is not None}))


def test_not_a_pack():
    assert_fails(binade.UsageError, "is not packed", run.case("llama").original)


def test_no_checkpoint(tmp_path):
    assert_fails(binade.BinadeError, str(tmp_path), tmp_path)


@pytest.mark.parametrize("kind", ["no_such_model", "cache", "../llama", None, 7, ["llama"]])
def test_unknown_architecture(broken, kind):
    edit_config(broken, model_type=kind)
    assert_fails(ModelError, "model", broken)


def test_incomplete_config(broken):
    edit_config(broken, hidden_size=None)
    assert_fails(ModelError, "does not configure a llama", broken)


@pytest.mark.parametrize("text", ["{", "[]", '"\\ud800"', ""])
def test_config_is_no_object(broken, text):
    (broken / "config.json").write_text(text)
    assert_fails(binade.DataError, "config.json", broken)


def test_no_config(broken):
    (broken / "config.json").unlink()
    assert_fails(binade.FileError, "config.json", broken)


def test_code_is_never_run(broken):
    (broken / "code.py").write_text("raise SystemExit('ran')")
    edit_config(broken, model_file="code.py")
    assert_fails(ModelError, "never run", broken)


def test_quantized(broken):
    edit_config(broken, quantization={"group_size": 64, "bits": 4})
    assert_fails(ModelError, "is quantized", broken)


def test_early_packs_mark_the_config(broken):
    edit_config(broken, quantization_config={"quant_method": "binade", "tile": 128})
    r4.load(broken)


def test_missing_parameters(broken):
    edit_config(broken, num_hidden_layers=4)
    assert_fails(
        ModelError,
        r"model\.layers\.3\.input_layernorm\.weight, .* and 1 more are missing",
        broken,
    )


def test_wrong_shape(broken):
    edit_config(broken, intermediate_size=640)
    assert_fails(ModelError, r"gate_proj.weight has shape \(520, 264\), .* \(640, 264\)", broken)


def test_missing_expert(tmp_path):
    case = run.case("qwen3_moe")
    path = tmp_path / "broken"
    shutil.copytree(case.packed, path)
    edit_config(path, num_experts=5)
    assert_fails(ModelError, "experts.4.up_proj.weight", path)


@pytest.mark.parametrize("pack_format", [1, 2])
def test_corrupt_part(tmp_path, pack_format):
    """Behind weights that are already loaded."""
    path = tmp_path / "broken"
    shutil.copytree(run.case("llama_untied", pack_format).packed, path)
    file = path / "model.safetensors"
    data = bytearray(file.read_bytes())
    n = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + n])
    prefix = "model.layers.2.mlp.up_proj.weight"
    name = next(k for k in header if k.startswith(prefix) and header[k]["dtype"] == "U32")
    begin, end = header[name]["data_offsets"]
    data[8 + n + begin : 8 + n + end] = b"\xff" * (end - begin)
    file.write_bytes(data)
    assert_fails(binade.DataError, "up_proj", path)


def test_truncated(broken):
    shard = sorted(broken.glob("*.safetensors"))[-1]
    os.truncate(shard, shard.stat().st_size - 4096)
    assert_fails(binade.DataError, "safetensors", broken)


def test_too_little_memory(broken, monkeypatch):
    monkeypatch.setattr(r4, "available_nbytes", lambda: 1 << 20)
    assert_fails(MemoryError, "takes at least 0.00 GB of memory", broken)


@pytest.mark.skipif(sys.platform != "linux", reason="macOS does not limit address space")
def test_memory_runs_out():
    """A limit that the check beforehand does not see."""
    script = """
import resource, sys
import mlx.core as mx
import binade
from binade.mlx import r4
import mlx_lm.models.llama
nbytes = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
r4.load_tokenizer = lambda *_: None
resource.setrlimit(resource.RLIMIT_AS, (nbytes + int(sys.argv[2]),) * 2)
try:
    r4.load(sys.argv[1])
except MemoryError as error:
    assert str(error).endswith(".weight: out of memory"), error
    print("MemoryError", end="")
else:
    print("loaded", end="")
"""
    seen = set()
    for megabytes in (40, 600):  # less does not suffice for the stacks of threads
        args = [sys.executable, "-c", script, run.case("llama_untied").packed, megabytes << 20]
        result = subprocess.run(list(map(str, args)), capture_output=True, text=True, check=True)
        seen.add(result.stdout)
    assert seen == {"MemoryError", "loaded"}


def test_available_memory():
    nbytes = r4.available_nbytes()
    assert 1 << 26 < nbytes < 1 << 50


def test_not_on_the_hub(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for path in ("nobody/nothing-at-all", "/no/such/directory", "no such name"):
        assert_fails(binade.FileError, "no such directory, and it cannot be had", path)
