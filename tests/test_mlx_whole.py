"""Slow: a real model generates as in mlx-lm with the original; two processes share one model.

The model is the demo's, named by BINADE_DEMO_MODEL.
"""

import json
import os
import socket
import subprocess
import sys

import pytest

mx = pytest.importorskip("mlx.core")

import mlx_lm  # noqa: E402
import mlx_running as run  # noqa: E402
from binade.mlx import _ops, loader, r4  # noqa: E402
from mlx.utils import tree_flatten  # noqa: E402
from mlx_lm.sample_utils import make_sampler  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]
QUESTION = "Why is the sky blue? Answer in three sentences."


@pytest.fixture(scope="module", autouse=True)
def _files():
    yield
    run.forget_all()


@pytest.mark.skipif("BINADE_DEMO_MODEL" not in os.environ, reason="needs the demo's model")
def test_real_model(tmp_path):
    path = os.environ["BINADE_DEMO_MODEL"]
    reference, tokenizer = mlx_lm.load(path)
    prompt = tokenizer.encode(QUESTION)
    sampler = make_sampler(temp=0.8, top_p=0.95)
    expected = generate(reference, prompt, sampler)
    passage = mx.array([prompt * 6])
    expected_logits = reference(passage)
    for pack_format in (1, 2):
        packed = tmp_path / str(pack_format)
        run.pack(path, packed, "--format", str(pack_format))
        model, other, dropped = r4.load(packed)
        assert dropped == []
        assert other.encode(QUESTION) == prompt
        _ops.forbid_rebuild(True)
        try:
            found = generate(model, prompt, sampler)
            run.assert_same_bits(model(passage), expected_logits)
        finally:
            _ops.forbid_rebuild(False)
        for (tokens, logprobs), (others, others_logprobs) in zip(found, expected, strict=True):
            assert tokens == others
            run.assert_same_bits(logprobs, others_logprobs)
        streamed = loader.load_reference_streamed(packed)
        run.assert_same_bits(streamed(passage[:, :8]), model(passage[:, :8]))


PEAK = """
import resource, sys
from pathlib import Path
from binade.mlx import loader, r4
import mlx_lm.models.llama
path = Path(sys.argv[1])
tokenizer = loader.load_tokenizer(path, {})  # of which the memory does not count
r4.load_tokenizer = lambda *_: tokenizer
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
model = r4.load(path)[0]
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.skipif("BINADE_DEMO_MODEL" not in os.environ, reason="needs the demo's model")
def test_peak_memory(tmp_path):
    """The packed model and one tensor; the largest is the embedding."""
    packed = tmp_path / "packed"
    run.pack(os.environ["BINADE_DEMO_MODEL"], packed)
    model = r4.load(packed)[0]
    nbytes = sum(a.nbytes for _, a in tree_flatten(model) if isinstance(a, mx.array))
    embedding = 2 * model.model.embed_tokens.weight.size
    result = subprocess.run(
        [sys.executable, "-c", PEAK, str(packed)], capture_output=True, text=True, check=True
    )
    unit = 1 if sys.platform == "darwin" else 1024
    assert unit * int(result.stdout) < nbytes + embedding


def generate(model, prompt, sampler):
    greedy = run.generate_tokens(model, prompt, 24)
    mx.random.seed(11)
    return greedy, run.generate_tokens(model, prompt, 24, sampler=sampler)


RANK = """
import sys
import mlx.core as mx
import mlx_running as run
from binade.mlx import loader, r4
group = mx.distributed.init(strict=True, backend="ring")
assert group.size() == 2
original, packed = sys.argv[1:]
models = [loader.load_reference(original)[0], r4.load(packed)[0]]
for model in models:
    model.shard(group)
tokens = mx.array([run.prompt_of(9)])
a, b = (model(tokens) for model in models)
run.assert_lively(a)
run.assert_same_bits(a, b)
halves = [m.model.layers[0].self_attn.q_proj.weight for m in models]
run.assert_same_bits(*halves)
assert 2 * len(halves[0]) == r4.load(packed)[0].model.layers[0].self_attn.q_proj.output_dims
print("same", end="")
"""


@pytest.mark.parametrize("name", ["llama", "llama_biases", "qwen2", "qwen3"])
def test_two_processes(name, tmp_path):
    """Sharded, a packed model computes what mlx-lm's own sharded model does."""
    case = run.case(name)
    hosts = tmp_path / "hosts.json"
    hosts.write_text(json.dumps([[f"127.0.0.1:{port}"] for port in free_ports(2)]))
    command = [sys.executable, "-c", RANK, str(case.original), str(case.packed)]
    ranks = []
    for rank in range(2):
        environment = {**os.environ, "MLX_HOSTFILE": str(hosts), "MLX_RANK": str(rank)}
        environment["PYTHONPATH"] = os.pathsep.join(sys.path)
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        ranks.append(subprocess.Popen(command, env=environment, **options))
    try:
        for process in ranks:
            out, err = process.communicate(timeout=120)
            assert process.returncode == 0, err
            assert out == "same"
    finally:
        for process in ranks:
            process.kill()
            process.communicate()


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports
