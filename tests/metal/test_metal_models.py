"""Whole small models: logits of a prompt and of a decode step, with products by our kernels and by
MLX's, both emulated."""

import emulated_models
import pytest
from agreement import assert_same, differing
from emulated_models import ByMlx, ByOurs, Wrong

# Long enough that two experts a token are sorted.
PROMPT = [(7 * i * i + 31 * i + 5) % 600 for i in range(33)]


@pytest.mark.parametrize("family", ["llama", "gemma4_moe"])
def test_models(family, tmp_path):
    model = emulated_models.load(family, tmp_path)
    by_ours = ByOurs()
    want = emulated_models.logits(model, ByMlx(), PROMPT, 6)
    got = emulated_models.logits(model, by_ours, PROMPT, 6)
    for name, a, b in zip(("prompt", "decode step"), got, want, strict=True):
        assert_same(a, b, f"{family}, {name}")
    # Equal by rebuilding would prove nothing.
    assert by_ours.nmatmuls > 20
    has_experts = family == "gemma4_moe"
    assert (by_ours.ngathers > 0) == (by_ours.nsorted > 0) == has_experts
    assert by_ours.nrebuilt == 0
    other = emulated_models.logits(model, Wrong(), PROMPT, 6)
    assert all(differing(a, b) for a, b in zip(other, want, strict=True))
