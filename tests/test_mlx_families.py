"""Packed models equal mlx-lm on the original checkpoint, bit for bit: every family, both formats.

Compared are logits of all positions of prompts, of single tokens behind them and of batches, and
tokens and log-probabilities of generations. One run of each family makes it an error to rebuild a
weight or to use an ordinary layer for a packed one, and counts the kernels that ran.
"""

import contextlib

import pytest

mx = pytest.importorskip("mlx.core")

import mlx.nn as nn  # noqa: E402
import mlx_running as run  # noqa: E402
from binade.mlx import _ops, placement, r4  # noqa: E402
from binade.mlx.loader import build_model  # noqa: E402
from mlx_lm.generate import BatchGenerator, speculative_generate_step  # noqa: E402
from mlx_lm.models import cache as caches  # noqa: E402
from mlx_lm.models.switch_layers import SwitchLinear  # noqa: E402
from mlx_lm.sample_utils import make_logits_processors, make_sampler  # noqa: E402
from mlx_models import FAMILIES  # noqa: E402

NAMES = [name for name in FAMILIES if name != "qwen3_moe"]
pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(scope="module", autouse=True)
def _files():
    yield
    run.forget_all()


def both(name, pack_format=2):
    return run.reference(name)[0], run.packed(name, pack_format)[0]


def assert_same_logits(reference, packed):
    """A prompt whole, in two pieces with a cache, then token by token; and a batch."""
    prompt = mx.array([run.prompt_of(23)])
    logits = packed(prompt)
    run.assert_lively(logits)
    run.assert_same_bits(logits, reference(prompt))
    state = [caches.make_prompt_cache(model) for model in (reference, packed)]
    for piece in (prompt[:, :17], prompt[:, 17:22], *(prompt[:, 22:] + i for i in range(4))):
        a, b = (model(piece, cache=c) for model, c in zip((reference, packed), state, strict=True))
        run.assert_same_bits(b, a)
    batch = mx.array([run.prompt_of(11, seed) for seed in range(1, 4)])
    run.assert_same_bits(packed(batch), reference(batch))


@pytest.mark.parametrize("pack_format", [1, 2])
@pytest.mark.parametrize("name", NAMES)
def test_logits(name, pack_format):
    assert_same_logits(*both(name, pack_format))


def test_separate_experts():
    """Experts that mlx-lm stacks are packed anew when loaded."""
    assert_same_logits(*both("qwen3_moe"))


@pytest.mark.parametrize("pack_format", [1, 2])
@pytest.mark.parametrize("name", NAMES)
def test_generation(name, pack_format):
    prompt = run.prompt_of(13)
    results = []
    for model in both(name, pack_format):
        greedy = run.generate_tokens(model, prompt, 10)
        mx.random.seed(7)
        sampler = make_sampler(temp=1.5, top_p=0.95, top_k=50)
        seeded = run.generate_tokens(
            model,
            prompt,
            10,
            sampler=sampler,
            logits_processors=make_logits_processors(None, 1.2, 20),
        )
        results.append((greedy, seeded))
    for (tokens, logprobs), (others, others_logprobs) in zip(*results, strict=True):
        assert tokens == others
        run.assert_lively(logprobs)
        run.assert_same_bits(logprobs, others_logprobs)
    (greedy, _), (seeded, _) = results[0]
    assert greedy != seeded
    assert len(set(seeded)) > 4


@pytest.mark.parametrize("name", ["llama", "gemma4_moe", "qwen3_5"])
def test_another_order_is_caught(name, monkeypatch):
    """Products whose halves are summed apart, in one kind of layer, change logits."""

    def halves(x, w, bias=None):
        weight = _ops.r4_rebuild(w)
        n = weight.shape[1] // 2
        y = [
            a.astype(mx.float32) @ b.astype(mx.float32).T
            for a, b in ((x[..., :n], weight[:, :n]), (x[..., n:], weight[:, n:]))
        ]
        return (y[0] + y[1]).astype(mx.bfloat16)

    prompt = mx.array([run.prompt_of(23)])
    packed = run.packed(name)[0]
    right = packed(prompt)
    mx.eval(right)
    monkeypatch.setattr(_ops, "r4_matmul", halves)
    with pytest.raises(AssertionError, match="differ, first at"):
        run.assert_same_bits(packed(prompt), right)


# ---- Nothing is rebuilt


@contextlib.contextmanager
def without_rebuilding(monkeypatch, model):
    """Rebuilding is an error, and so is an ordinary layer with a weight of a packed one's shape."""
    shapes = {m._r4.shape for m in run.packed_modules(model).values()}
    for kind in (nn.Linear, nn.Embedding, SwitchLinear):
        monkeypatch.setattr(kind, "__call__", guarded(kind.__call__, shapes))
    monkeypatch.setattr(nn.Embedding, "as_linear", guarded(nn.Embedding.as_linear, shapes))
    for name in ("matmul", "addmm", "gather_mm"):
        monkeypatch.setattr(mx, name, guarded_product(getattr(mx, name), shapes))
    _ops.reset_counts()
    _ops.forbid_rebuild(True)
    try:
        yield
    finally:
        _ops.forbid_rebuild(False)


def guarded(call, shapes):
    def wrapped(self, *args, **kwargs):
        assert tuple(self["weight"].shape) not in shapes
        return call(self, *args, **kwargs)

    return wrapped


def guarded_product(call, shapes):
    def wrapped(*args, **kwargs):
        for a in args:
            if isinstance(a, mx.array) and a.ndim >= 2:
                assert (*a.shape[:-2], a.shape[-1], a.shape[-2]) not in shapes
        return call(*args, **kwargs)

    return wrapped


@pytest.mark.parametrize("name", list(FAMILIES))
def test_kernels_only(name, monkeypatch):
    packed = r4.load(run.case(name).packed)[0]
    reference = run.reference(name)[0]
    prompt = mx.array([run.prompt_of(40)])
    expected = reference(prompt)
    mx.eval(expected)
    with without_rebuilding(monkeypatch, packed):
        logits = packed(prompt)
        mx.eval(logits)
    run.assert_same_bits(logits, expected)
    counts = _ops.counts()
    kinds = [type(m).__name__ for m in run.packed_modules(packed).values()]
    nexperts, nembeddings = kinds.count("R4SwitchLinear"), kinds.count("R4Embedding")
    nlinear = kinds.count("R4Linear")
    assert counts["rebuild"] == 0
    assert counts["rows"] == nembeddings == 1
    assert counts["gather_mm"] == nexperts
    assert (nexperts > 0) == ("moe" in name)
    tied = not hasattr(getattr(packed, "language_model", packed), "lm_head")
    assert counts["matmul"] == nlinear + tied > 8


@pytest.mark.parametrize("name", list(FAMILIES))
def test_every_packed_tensor_stays_packed(name):
    """Of those that the model uses; halves of fused experts are two layers of one tensor each."""
    case = run.case(name)
    model, _, dropped = run.packed(name)
    assert dropped == case.extra
    checkpoint = _ops.Checkpoint(str(case.packed))
    used = [n for n in checkpoint.names() if checkpoint.info(n)["packed"] and n not in dropped]
    assert used
    weights = sum(run.np.prod(m._r4.shape) for m in run.packed_modules(model).values())
    assert weights == sum(run.np.prod(checkpoint.info(n)["shape"]) for n in used)


def test_halves_of_experts_are_not_decoded(monkeypatch):
    def refuse(*_):
        raise AssertionError

    monkeypatch.setattr(_ops, "r4_make", refuse)
    for name in ("gemma4_moe", "qwen3_5_moe"):
        r4.load(run.case(name).packed)


# ---- Ways to generate


def generate_batch(model, prompts):
    """(tokens, log-probabilities) of each prompt."""
    generator = BatchGenerator(model)
    uids = generator.insert(prompts, [8, 5, 8])
    found = {uid: ([], []) for uid in uids}
    while responses := generator.next_generated():
        for response in responses:
            tokens, logprobs = found[response.uid]
            tokens.append(response.token)
            logprobs.append(response.logprobs)
    generator.close()
    return [(tokens, mx.stack(logprobs)) for tokens, logprobs in found.values()]


@pytest.mark.parametrize("name", ["llama", "gemma4_12b", "gemma4_e", "gemma4_moe", "qwen3_5"])
def test_batches_of_prompts(name):
    """Prompts of different lengths, padded on the left, of which one ends early."""
    prompts = [run.prompt_of(length, length) for length in (5, 12, 9)]
    a, b = (generate_batch(model, prompts) for model in both(name))
    for (tokens, logprobs), (others, others_logprobs) in zip(a, b, strict=True):
        assert tokens == others
        run.assert_same_bits(logprobs, others_logprobs)
    assert [len(tokens) for tokens, _ in a] == [8, 5, 8]


@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_speculative_decoding(name):
    """The draft is a model of one's own family, which the packed one is packed of too."""
    results = []
    for model, draft in zip(both(name), both("mistral"), strict=True):
        steps = speculative_generate_step(
            mx.array(run.prompt_of(9)), model, draft, num_draft_tokens=3, max_tokens=12
        )
        results.append(list(steps))
    a, b = ([(token, drafted) for token, _, drafted in steps] for steps in results)
    assert a == b
    for (_, x, _), (_, y, _) in zip(*results, strict=True):
        run.assert_same_bits(x, y)


@pytest.mark.parametrize("name", ["llama", "qwen2", "phi3"])
@pytest.mark.parametrize(
    "options",
    [
        {"max_kv_size": 16},
        {"kv_bits": 8, "kv_group_size": 32},
        {"kv_bits": 4, "kv_group_size": 32, "quantized_kv_start": 15},
    ],
    ids=["rotating", "quantized", "quantized late"],
)
def test_caches(name, options):
    a, b = (run.generate_tokens(m, run.prompt_of(13), 14, **options) for m in both(name))
    assert a[0] == b[0]
    run.assert_same_bits(a[1], b[1])


@pytest.mark.parametrize("name", ["llama", "gemma4_12b", "qwen3_5"])
def test_saved_prompt_cache(name, tmp_path):
    """Caches of both are the same bytes, and each model goes on from the other's."""
    prompt = run.prompt_of(14)
    files = []
    for i, model in enumerate(both(name)):
        state = caches.make_prompt_cache(model)
        mx.eval(model(mx.array([prompt]), cache=state))
        files.append(tmp_path / f"{i}.safetensors")
        caches.save_prompt_cache(str(files[-1]), state)
    assert files[0].read_bytes() == files[1].read_bytes()
    results = [
        run.generate_tokens(model, [5], 6, prompt_cache=caches.load_prompt_cache(str(file)))
        for model, file in zip(both(name), reversed(files), strict=True)
    ]
    assert results[0][0] == results[1][0]
    run.assert_same_bits(results[0][1], results[1][1])


# ---- Other classes of weights


@pytest.mark.parametrize(
    ("name", "classes"), [("gemma4_e", "linear,embed,ple"), ("qwen3_5", "linear,embed,other")]
)
def test_classes(name, classes):
    """Per-layer embeddings stay packed; what is computed from a packed tensor is decoded."""
    packed, _, dropped = r4.load(run.case(name, 2, "--classes", classes).packed)
    assert dropped == run.case(name).extra
    reference = run.reference(name)[0]
    assert_same_logits(reference, packed)
    if classes.endswith("ple"):
        assert len([m for m in run.packed_modules(packed) if "embed_tokens" in m]) == 2


def test_only_some_packed():
    packed = r4.load(run.case("llama_biases", 2, "--exclude", "*.layers.1.*").packed)[0]
    names = run.packed_modules(packed)
    assert names
    assert not [name for name in names if ".layers.1." in name]
    assert_same_logits(run.reference("llama_biases")[0], packed)


def test_placement_evaluates_nothing():
    """What is learnt about a checkpoint is learnt without decoding it."""
    path = run.case("gemma4_moe").packed
    checkpoint = _ops.Checkpoint(str(path))
    model, _ = build_model(path)
    mx.clear_cache()
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    parts = placement.Placement(model, checkpoint).parts
    assert parts
    assert mx.get_peak_memory() - before < 2 * 6 * 528 * 264  # the experts of one layer in BF16
