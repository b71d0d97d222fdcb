"""What packed layers offer to the rest of MLX and mlx-lm, beside their products."""

import pytest

mx = pytest.importorskip("mlx.core")

import binade  # noqa: E402
import mlx.nn as nn  # noqa: E402
import mlx_running as run  # noqa: E402
from binade.mlx import _ops, loader, modules, r4  # noqa: E402
from mlx.utils import tree_flatten  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(scope="module", autouse=True)
def _files():
    yield
    run.forget_all()


def parameters(model):
    return tree_flatten(model.parameters(), destination={})


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
