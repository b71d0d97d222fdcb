"""Loading models for MLX: the BF16 side, what packed layers offer, bad input, the hub.

A failure is one sentence in an exception of a documented type, and leaves no memory, no open file.
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
import mlx.nn as nn  # noqa: E402
import mlx_running as run  # noqa: E402
from binade.mlx import _ops, loader, modules, r4  # noqa: E402
from binade.mlx.errors import ModelError  # noqa: E402
from mlx.utils import tree_flatten  # noqa: E402
from mlx_models import FAMILIES  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(scope="module", autouse=True)
def _files():
    yield
    run.forget_all()


def parameters(model):
    return tree_flatten(model.parameters(), destination={})


# ---- The BF16 side


@pytest.mark.parametrize("name", ["llama", "llama_biases", "qwen3_5", "gemma4_moe"])
def test_reference_is_mlx_lm(name):
    """Of the original and of the pack, the very parameters that mlx-lm loads."""
    expected = parameters(run.reference(name)[0])
    for path in (run.case(name).original, run.case(name).packed):
        found = parameters(loader.load_reference(path)[0])
        assert found.keys() == expected.keys()
        for key, array in expected.items():
            assert found[key].dtype == array.dtype
            assert found[key].shape == array.shape
            assert mx.array_equal(found[key], array)


@pytest.mark.parametrize("name", [name for name in FAMILIES if "moe" not in name])
def test_streamed(name):
    """Layer by layer gives the same logits, and keeps no layer."""
    streamed = loader.load_reference_streamed(run.case(name).packed)
    tokens = mx.array([run.prompt_of(12), run.prompt_of(12, 1)])
    logits = streamed(tokens)
    run.assert_same_bits(logits, run.reference(name)[0](tokens))
    run.assert_same_bits(streamed(tokens), logits)


def test_streamed_memory():
    """Peak memory is far below the model's."""
    case = run.case("gemma4_12b")
    tokens = mx.array([run.prompt_of(4)])
    model = loader.load_reference(case.original)[0]
    nbytes = sum(array.nbytes for array in parameters(model).values())
    del model
    gc.collect()
    mx.clear_cache()
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    mx.eval(loader.load_reference_streamed(case.packed)(tokens))
    assert mx.get_peak_memory() - before < 0.6 * nbytes


# ---- What packed layers offer


@pytest.fixture
def llama():
    return r4.load(run.case("llama_biases").packed)[0]


def layer_of(name, path):
    """A packed layer and its BF16 counterpart."""
    found = []
    for model in (run.packed(name)[0], run.reference(name)[0]):
        found.append(dict(model.named_modules())[path])
    return found


def test_weight_without_decoding(llama):
    _ops.reset_counts()
    layer = llama.model.layers[0].self_attn.q_proj
    assert (layer.weight.shape, layer.weight.dtype) == ((512, 264), mx.bfloat16)
    assert (layer.input_dims, layer.output_dims) == (264, 512)
    assert llama.model.embed_tokens.weight.shape == (600, 264)
    assert isinstance(layer, nn.Linear)
    assert isinstance(llama.model.embed_tokens, nn.Embedding)
    assert "bias" in layer
    assert repr(llama)
    assert _ops.counts()["rebuild"] == 0
    expert = layer_of("gemma4_moe", "language_model.model.layers.0.experts.switch_glu.up_proj")[0]
    assert (expert.num_experts, expert.output_dims, expert.input_dims) == (6, 264, 264)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("llama", "model.layers.1.mlp.down_proj"),
        ("llama", "model.embed_tokens"),
        ("gemma4_moe", "language_model.model.layers.0.experts.switch_glu.gate_proj"),
    ],
)
def test_weight_has_the_bits(name, path):
    packed, plain = layer_of(name, path)
    run.assert_same_bits(packed.weight, plain.weight)


def test_no_fake_parameters(llama):
    names = parameters(llama)
    assert not [name for name in names if name.endswith("proj.weight") or "embed" in name]
    assert "model.layers.0.self_attn.q_proj.bias" in names
    assert "weight" not in llama.model.embed_tokens.trainable_parameters()


def test_counting(llama):
    """mlx-lm counts every weight, and of each the bytes in memory."""
    from mlx_lm.utils import compute_bits_per_weight, get_total_parameters

    original = loader.load_reference(run.case("llama_biases").original)[0]
    assert get_total_parameters(llama) == get_total_parameters(original)
    assert 12 < compute_bits_per_weight(llama) < 13.5
    assert 16 <= compute_bits_per_weight(original) < 16.1


@pytest.mark.parametrize("name", ["qwen2", "qwen3_5_moe"])
def test_quantizing(name):
    """Quantized models are those of BF16; rows of 264 do not make groups, so some layers stay."""
    quantized = []
    for load in (
        lambda: loader.load_reference(run.case(name).original),
        lambda: r4.load(run.case(name).packed),
    ):
        model = load()[0]
        nn.quantize(model, 64, 4, class_predicate=has_groups)
        quantized.append({k: m for k, m in model.named_modules() if "scales" in m})
    reference, packed = quantized
    assert {key: type(m) for key, m in packed.items()} == {
        key: type(m) for key, m in reference.items()
    }
    assert len(packed) >= 6
    for key, module in reference.items():
        a, b = parameters(packed[key]), parameters(module)
        assert a.keys() == b.keys()
        assert all(mx.array_equal(a[k], b[k]) for k in a)


def has_groups(_, module):
    return hasattr(module, "to_quantized") and module.weight.shape[-1] % 64 == 0


def test_gradients():
    """Through a layer and, with LoRA, through a model: those of BF16."""
    from mlx_lm.tuner.utils import linear_to_lora_layers

    x = mx.random.normal((3, 520)).astype(mx.bfloat16)
    packed, plain = layer_of("llama", "model.layers.1.mlp.down_proj")
    a, b = (mx.grad(lambda x, f=f: f(x).square().sum())(x) for f in (packed, plain))
    run.assert_same_bits(a, b)

    tokens = mx.array([run.prompt_of(9)])
    results = []
    for load in (
        lambda: loader.load_reference(run.case("llama").original),
        lambda: r4.load(run.case("llama").packed),
    ):
        model = load()[0]
        model.freeze()
        mx.random.seed(3)
        config = {"rank": 4, "scale": 2.0, "dropout": 0.0}
        linear_to_lora_layers(model, 2, config)
        trained = parameters_of_lora(model)
        assert len(trained) == 2 * 2 * 7
        gradient = nn.value_and_grad(model, lambda m, t: m(t).astype(mx.float32).square().mean())
        loss, grads = gradient(model, tokens)
        results.append((loss, tree_flatten(grads, destination={})))
    (loss, grads), (other, others) = results
    assert loss.item() == other.item()
    assert grads.keys() == others.keys()
    assert all(mx.array_equal(grads[key], others[key]) for key in grads)
    assert any(float(mx.abs(g).max()) > 0 for g in grads.values())


def parameters_of_lora(model):
    return tree_flatten(model.trainable_parameters())


def test_compiled():
    packed, plain = layer_of("llama_biases", "model.layers.0.mlp.up_proj")
    x = mx.random.normal((5, 264)).astype(mx.bfloat16)
    run.assert_same_bits(mx.compile(lambda x: packed(x) + 1)(x), plain(x) + 1)


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16])
def test_other_inputs(dtype):
    packed, plain = layer_of("llama_biases", "model.layers.0.mlp.up_proj")
    x = mx.random.normal((5, 264)).astype(dtype)
    a, b = packed(x), plain(x)
    assert a.dtype == b.dtype
    assert mx.array_equal(a, b)


def test_sharding(llama):
    """MLX's sharded layers take the weight's bits, here in a group of one.

    They add biases after the rounding, so the reference must be sharded too.
    """
    reference = loader.load_reference(run.case("llama_biases").original)[0]
    tokens = mx.array([run.prompt_of(9)])
    for model in (reference, llama):
        model.shard(mx.distributed.init())
    run.assert_same_bits(llama(tokens), reference(tokens))


def test_sharding_in_place_is_refused():
    from mlx.nn.layers.distributed import shard_inplace

    expert = layer_of("gemma4_moe", "language_model.model.layers.0.experts.switch_glu.up_proj")[0]
    with pytest.raises(binade.UsageError, match="cannot be replaced"):
        shard_inplace(expert, "all-to-sharded")


def test_weight_cannot_be_set(llama):
    with pytest.raises(AttributeError):
        llama.model.embed_tokens.weight = mx.zeros((600, 264))


def test_swap_is_of_exact_classes():
    """A subclass may use its weight in other ways."""

    class Odd(nn.Linear):
        pass

    assert modules.can_be_packed(nn.Linear(2, 2))
    assert not modules.can_be_packed(Odd(2, 2))


# ---- Bad input


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


# ---- The hub


def test_not_on_the_hub(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for path in ("nobody/nothing-at-all", "/no/such/directory", "no such name"):
        assert_fails(binade.FileError, "no such directory, and it cannot be had", path)


def test_from_the_cache():
    """A hub id that is in the cache is not downloaded."""
    cache = run.work_dir() / "hub"
    snapshot = cache / "models--org--packed" / "snapshots" / ("a" * 40)
    shutil.copytree(run.case("llama").packed, snapshot)
    refs = cache / "models--org--packed" / "refs"
    refs.mkdir()
    (refs / "main").write_text("a" * 40)
    script = (
        "from binade.mlx.r4 import load; import mlx.core as mx\n"
        "model, tokenizer, dropped = load('org/packed')\n"
        "print(dropped, model(mx.array([[3]])).shape)"
    )
    environment = {**os.environ, "HF_HUB_CACHE": str(cache), "HF_HUB_OFFLINE": "1"}
    result = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert result.stdout == "[] (1, 1, 600)\n"


def test_downloaded(monkeypatch):
    """What is not there is asked of the hub, weights of any name and what a tokenizer needs."""
    asked = []

    def download(repo, revision, allow_patterns):
        asked.append((repo, revision))
        assert {"*.safetensors", "*.json", "*.jinja", "*.model"} <= set(allow_patterns)
        return str(run.case("llama").packed)

    monkeypatch.setattr(loader, "snapshot_download", download)
    r4.load("org/packed", revision="v1")
    loader.load_reference("org/packed")
    assert asked == [("org/packed", "v1"), ("org/packed", None)]


# ---- Importing


def import_with(files, tmp_path, setup=""):
    """The last line that `import binade.mlx` leaves on standard error, with these modules first."""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    code = f"import sys; sys.path.insert(0, sys.argv[1])\n{setup}\nimport binade.mlx"
    args = [sys.executable, "-c", code, str(tmp_path)]
    result = subprocess.run(args, capture_output=True, text=True, check=False)
    return result.returncode, [line for line in result.stderr.splitlines() if line]


def test_mlx_without_backend(tmp_path):
    code, lines = import_with({"mlx/__init__.py": ""}, tmp_path)
    assert code == 1
    assert lines[-1].startswith("ImportError: binade.mlx needs MLX with a backend: pip install")


def test_without_operations(tmp_path):
    setup = "sys.modules['binade.mlx._ops'] = None"
    code, lines = import_with({}, tmp_path, setup)
    assert code == 1
    assert lines[-1].startswith("ImportError: binade was installed without its MLX operations")


def test_without_mlx_lm(tmp_path):
    setup = (
        "import importlib.metadata as m\n"
        "def version(name): raise m.PackageNotFoundError(name)\n"
        "m.version = version"
    )
    code, lines = import_with({}, tmp_path, setup)
    assert code == 1
    assert lines[-1].startswith("ImportError: binade.mlx needs mlx-lm: pip install")


def test_another_mlx(tmp_path):
    setup = (
        "import types, mlx.core\n"
        "mlx.core.__version__ = '9.9.9'\n"
        "sys.modules['binade.mlx._ops'] = types.SimpleNamespace(mlx_is_proven=lambda: False)"
    )
    code, lines = import_with({}, tmp_path, setup)
    assert code == 0
    assert "UserWarning: MLX 9.9.9 is not the version that" in lines[0]
