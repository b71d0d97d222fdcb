"""Loading for MLX: the BF16 side, whole and layer by layer; the hub; what importing can say."""

import gc
import os
import shutil
import subprocess
import sys

import pytest

mx = pytest.importorskip("mlx.core")

import mlx_running as run  # noqa: E402
from binade.mlx import loader, r4  # noqa: E402
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


# ---- The hub


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
