"""Launches that do what is around products too equal MLX's operations on the GPU, bit for bit.

Weights of one column are products themselves, and so are rows of the unit matrix: with them every
value meets every addition, activation and norm.
"""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import gpu_data as data
import mlx.core as mx
import numpy as np
import pytest
from binade.mlx import _ops, fusion
from gpu_running import DRY, HERE, assert_same_bits, take_served
from mlx_lm.models.activations import swiglu
from mlx_lm.models.gemma4_text import geglu
from test_gpu_gather import choose, experts, gather

SHAPES = [(300, 520), (129, 704), (77, 100), (4096, 4096), (1024, 14336), (2816, 2112), (5, 8192)]
NORMED_K = [64, 100, 512, 520, 704, 896, 1024, 2816, 3072, 3840, 4096, 5120, 5376, 8192]
NOT_NORMED_K = [8192 + 64, 12288]
# Experts, R, K.
EXPERTS = [(4, 33, 70), (8, 64, 128), (16, 704, 2816), (4, 8, 8192)]
ACTIVATIONS = {"swiglu": swiglu, "geglu": geglu}
PLAIN = "cpu" if DRY else "matvec_1"
if DRY:
    SHAPES, EXPERTS, NORMED_K, NOT_NORMED_K = (SHAPES[:3], EXPERTS[:2], NORMED_K[:4], [8192 + 64])


def expect_kernels(*names):
    """So many launches of each, for one weight each, since it was last asked; no others."""
    found = sorted(kernel for _, kernel, _, _, _, n in take_served() for _ in range(n))
    assert found == sorted(["cpu"] * len(names) if DRY else names)


def fused_add(residual, product):
    fused = _ops.fuse_add(residual, product)
    assert (fused is None) == DRY
    return residual + product if DRY else fused


def fused_gate(gate, up, activation):
    fused = _ops.fuse_gated(gate, up, fusion._table_of(activation))
    assert (fused is None) == DRY
    return activation(gate, up) if DRY else fused


def column(step, offset=0):
    """A weight of one column: every pattern."""
    bits = (mx.arange(65536, dtype=mx.uint32) * step + offset) & 0xFFFF
    w = data.row_by_row(data.as_bf16(bits)[:, None])
    mx.eval(w)
    return w


# 1, -1, and one that makes zeros of both signs and subnormals of most.
FACTORS = [0x3F80, 0xBF80, 0x0080, 0x3B80]


def factor(bits):
    return data.as_bf16(mx.array([[bits]], mx.uint16))


# ---- Residuals


@pytest.mark.parametrize("bits", FACTORS)
def test_every_residual(bits):
    w, x = column(40503), factor(bits)
    packed = _ops.r4_make(w)
    product = x @ w.T
    opposite = data.as_bf16(data.bits_of(product) ^ 0x8000)
    near = data.as_bf16(data.bits_of(product) ^ mx.random.randint(0, 0x800, (1, 65536), mx.uint16))
    residuals = [column(step, offset).T for step, offset in ((1, 0), (40503, 7), (9, 30000))]
    mx.eval(product, opposite, near, residuals)
    for residual in (product, opposite, near, *residuals):
        take_served()
        got = fused_add(residual, _ops.r4_matmul(x, packed))
        assert_same_bits(got, residual + product, f"times 0x{bits:04x}")
        expect_kernels("matvec_added")


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_residuals(shape):
    for kind in data.BITING:
        x, w = data.operands(kind, 1, *shape)
        packed, residual = _ops.r4_make(w), data.sprinkled(1, shape[0], 0.1)
        mx.eval(residual)
        take_served()
        for lead in ((), (1,), (1, 1)):
            one, r = x.reshape(*lead, shape[1]), residual.reshape(*lead, shape[0])
            got = fused_add(r, _ops.r4_matmul(one, packed))
            assert_same_bits(got, r + one @ w.T, f"{kind} {shape} {lead}")
        expect_kernels(*["matvec_added"] * 3)
        # One that is computed by what comes before, and a chain.
        r, found = mx.exp(residual), mx.exp(residual)
        for _ in range(3):
            r = r + x @ w.T
            found = fused_add(found, _ops.r4_matmul(x, packed))
        assert_same_bits(found, r, f"{kind} {shape} chain")


def test_residuals_of_a_product_that_is_used_twice():
    x, w = data.operands("paired", 1, 300, 520)
    product, r = _ops.r4_matmul(x, _ops.r4_make(w)), data.normal((1, 300))
    y = fused_add(r, product)
    assert_same_bits(y * product, (r + x @ w.T) * (x @ w.T))


def test_what_no_launch_adds():
    x, w = data.operands("paired", 2, 64, 256)
    packed, r = _ops.r4_make(w), data.normal((2, 64))
    evaluated = _ops.r4_matmul(x[:1], packed)
    mx.eval(evaluated)
    assert _ops.fuse_add(r[:1], evaluated) is None
    assert _ops.fuse_add(r, _ops.r4_matmul(x, packed)) is None
    assert _ops.fuse_add(r[:1].astype(mx.float32), _ops.r4_matmul(x[:1], packed)) is None
    assert _ops.fuse_add(r, _ops.r4_matmul(x[:1], packed)) is None
    assert _ops.fuse_add(r[:1], x[:1] @ w.T) is None
    two = _ops.r4_matmuls(x[:1], [packed, packed])
    assert _ops.fuse_add(r[:1], two[0]) is None


# ---- Gated units


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("bits", FACTORS)
def test_every_gate(bits, name):
    """Joined and apart; ups of every value too."""
    activation, x, gate = ACTIVATIONS[name], factor(bits), column(40503)
    packed = _ops.r4_make(gate)
    for step in (1, 40503, 7, 32769):
        up = column(step, 3 * step + 1)
        packed_up = _ops.r4_make(up)
        want = activation(x @ gate.T, x @ up.T)
        take_served()
        joined = fused_gate(*_ops.r4_matmuls(x, [packed, packed_up]), activation)
        apart = fused_gate(_ops.r4_matmul(x, packed), _ops.r4_matmul(x, packed_up), activation)
        assert_same_bits(joined, want, f"{name}, joined, step {step}")
        assert_same_bits(apart, want, f"{name}, apart, step {step}")
        expect_kernels(*["matvec_gated"] * 4)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gated(shape):
    for kind in data.BITING:
        x, gate = data.operands(kind, 1, *shape)
        up = data.operands("one in 10", 1, *shape, 1)[1]
        packed = [_ops.r4_make(w) for w in (gate, up)]
        take_served()
        for name, activation in ACTIVATIONS.items():
            for lead in ((), (1,), (1, 1)):
                one = x.reshape(*lead, shape[1])
                got = fused_gate(*_ops.r4_matmuls(one, packed), activation)
                assert_same_bits(got, activation(one @ gate.T, one @ up.T), f"{name} {kind}")
        expect_kernels(*["matvec_gated"] * 12)


@pytest.mark.parametrize("shape", EXPERTS, ids=str)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_gated_experts(name, shape):
    activation, (nexperts, n, k) = ACTIVATIONS[name], shape
    for kind in ("paired", "mixed"):
        gate, up = experts(kind, *shape), experts("one in 10", nexperts, n, k, 1)
        packed = [_ops.r4_make(w) for w in (gate, up)]
        for tokens, chosen in ((1, 1), (1, 8), (4, 8), (9, 7)):
            rhs = choose(nexperts, tokens, chosen)[None]
            x = data.paired_x(tokens, k).reshape(1, tokens, 1, 1, k)
            mx.eval(x)
            want = activation(gather(x, gate, rhs=rhs), gather(x, up, rhs=rhs))
            take_served()
            joined = fused_gate(*_ops.r4_gather_mms(x, packed, rhs_indices=rhs), activation)
            products = [_ops.r4_gather_mm(x, w, rhs_indices=rhs) for w in packed]
            apart = fused_gate(*products, activation)
            for got in (joined, apart):
                assert_same_bits(got, want, f"{name} {kind} {shape} {tokens} {chosen}")
            expect_kernels(*["gather_gated"] * 4)


def test_what_no_launch_gates():
    x, w = data.operands("paired", 2, 64, 256)
    packed, table = _ops.r4_make(w), fusion._table_of(swiglu)
    one, other = _ops.r4_matmul(x[:1], packed), _ops.r4_matmul(x[1:], packed)
    assert _ops.fuse_gated(one, other, table) is None
    assert _ops.fuse_gated(one, data.normal((1, 64)), table) is None
    assert _ops.fuse_gated(one, _ops.r4_matmul(x[:1], packed), table[:-1]) is None
    few = _ops.r4_make(data.row_by_row(w[:40]))
    assert _ops.fuse_gated(one, _ops.r4_matmul(x[:1], few), table) is None


# ---- Norms


def norm_inputs(k):
    """Rows of x of every size, and with zeros, infinities and NaN."""
    sizes = [2.0**i for i in (-125, -70, -20, -9, -3, 0, 1, 6, 30, 62, 64, 100, 120)]
    rows = [(mx.random.normal((1, k)) * size).astype(mx.bfloat16) for size in sizes]
    rows += [data.random_bits((1, k), 100, 140), data.random_bits((1, k), 0, 3)]
    rows += [mx.zeros((1, k), mx.bfloat16), data.as_bf16(mx.full((1, k), 0x8000, mx.uint16))]
    first = mx.arange(k)[None] == k // 2
    rows += [
        mx.where(first, data.as_bf16(mx.array(b, mx.uint16)), rows[5]) for b in (0x7F80, 0xFF81)
    ]
    mx.eval(rows)
    return rows


def unit(k):
    return data.row_by_row(mx.eye(k).astype(mx.bfloat16))


@pytest.mark.parametrize("eps", [1e-5, 1e-6])
@pytest.mark.parametrize("k", NORMED_K)
def test_norm_itself(k, eps):
    """Products with the unit matrix: more rows of common sizes, whose sums must be right in every
    bit for all their roundings to be."""
    w, weight = unit(k), data.random_bits((k,), 125, 128)
    packed = _ops.r4_make(w)
    rows = norm_inputs(k) + [data.normal((1, k)) for _ in range(4 if DRY else 20)]
    mx.eval(weight, rows)
    for i, x in enumerate(rows):
        normed = mx.fast.rms_norm(x, weight, eps)
        mx.eval(normed)
        take_served()
        got = _ops.r4_matmul(mx.fast.rms_norm(x, weight, eps), packed)
        assert_same_bits(got, normed @ w.T, f"K={k}, row {i}")
        expect_kernels("matvec_normed_1")
    mx.clear_cache()


@pytest.mark.parametrize("k", NORMED_K)
def test_norms_before_products(k):
    rows = (72, 33, 5)
    weights = [data.operands(kind, 1, n, k)[1] for kind, n in zip(data.BITING, rows, strict=False)]
    packed = [_ops.r4_make(w) for w in weights]
    up = data.operands("one in 10", 1, rows[0], k, 1)[1]
    pair = [packed[0], _ops.r4_make(up)]
    weight = data.random_bits((k,), 125, 128)
    mx.eval(weight)
    for x in norm_inputs(k):
        for lead, eps in (((), 1e-6), ((1,), 1e-5), ((1, 1), 1e-6)):
            one = x.reshape(*lead, k)
            normed = mx.fast.rms_norm(one, weight, eps)
            mx.eval(normed)
            take_served()
            for count in (1, 2, 3):
                ys = _ops.r4_matmuls(mx.fast.rms_norm(one, weight, eps), packed[:count])
                for y, w in zip(ys, weights, strict=False):
                    assert_same_bits(y, normed @ w.T, f"K={k} {lead} of {count}")
            later = mx.fast.rms_norm(one, weight, eps)
            got = fused_gate(*_ops.r4_matmuls(later, pair), swiglu)
            assert_same_bits(got, swiglu(normed @ weights[0].T, normed @ up.T), f"K={k} gated")
            names = [f"matvec_normed_{n}" for n in (1, 2, 2, 3, 3, 3)]
            expect_kernels(*names, *["matvec_gated_normed"] * 2)


def kernel_of_product(normed, packed, want, what):
    take_served()
    assert_same_bits(_ops.r4_matmul(normed, packed), want, what)
    (entry,) = take_served()
    return entry[1]


def test_norms_that_stay_apart():
    """Norms that were computed before, or are not those of the kernels; and x in odd places."""
    x, w = data.operands("paired", 3, 64, 256)
    packed, weight = _ops.r4_make(w), data.normal((256,))
    buffer = data.normal((600,))
    mx.eval(weight, buffer)

    def ours(x, weight, what):
        def norm():
            return mx.fast.rms_norm(x, weight, 1e-5)

        normed = norm()
        mx.eval(normed)
        return kernel_of_product(norm(), packed, normed @ w.T, what)

    before = mx.fast.rms_norm(x[:1], weight, 1e-5)
    mx.eval(before)
    assert kernel_of_product(before, packed, before @ w.T, "computed before") == PLAIN
    assert ours(x[:1], None, "no weight") == PLAIN
    for offset in (0, 1, 2, 3, 4, 8):
        ours(buffer[None, offset : offset + 256], weight, f"x at {offset}")
        ours(x[1:2], buffer[offset : offset + 256], f"the weight at {offset}")
    ours(buffer[:512:2][None], weight, "every second")
    ours(buffer[None, :256][:, ::-1], weight, "backwards")
    ours(x[:1], weight[::-1], "the weight backwards")
    ours(x[:1], mx.broadcast_to(weight[:1], (256,)), "one weight for all")
    ours(mx.broadcast_to(buffer[:1], (1, 256)), weight, "one x for all")
    ours(mx.exp(x[:1]), weight, "not computed before")
    ours(x, weight, "three rows")


@pytest.mark.parametrize("k", NOT_NORMED_K)
def test_long_norms(k):
    """MLX adds these in another order."""
    x, w = data.operands("paired", 1, 40, k)
    weight = data.normal((k,))
    normed = mx.fast.rms_norm(x, weight, 1e-6)
    mx.eval(weight, normed)
    later = mx.fast.rms_norm(x, weight, 1e-6)
    assert kernel_of_product(later, _ops.r4_make(w), normed @ w.T, f"K={k}") == PLAIN


# ---- Without fusing


def compute_all():
    """Some of everything, as a hash of its bits; and the kernels."""
    x, gate = data.operands("mixed", 1, 300, 520)
    up = data.operands("paired", 1, 300, 520, 1)[1]
    packed = [_ops.r4_make(w) for w in (gate, up)]
    stacks = [_ops.r4_make(experts("paired", 4, 50, 130, seed)) for seed in (0, 1)]
    tokens, rhs = data.paired_x(2, 130)[:, None, None], choose(4, 2, 3)
    weight, r = data.sprinkled(1, 520, 0.01, 120, 130)[0], data.sprinkled(1, 300, 0.1)
    activate = fusion._FusedActivation(swiglu)
    mx.eval(x, tokens, weight, r)
    take_served()
    ys = [
        fusion._add(r, _ops.r4_matmul(x, packed[0])),
        activate(*_ops.r4_matmuls(x, packed)),
        activate(*_ops.r4_gather_mms(tokens, stacks, rhs_indices=rhs)),
        activate(*_ops.r4_matmuls(mx.fast.rms_norm(x, weight, 1e-5), packed)),
        *_ops.r4_matmuls(mx.fast.rms_norm(x, weight, 1e-5), packed),
    ]
    digest = hashlib.sha256(b"".join(np.array(y.view(mx.uint16)).tobytes() for y in ys))
    return digest.hexdigest(), sorted({kernel for _, kernel, *_ in take_served()})


DISTRUSTING = """
import gpu_running
assert gpu_running.choose_device() is None
from binade.mlx import _ops
_ops.distrust("fused")
import test_gpu_fusion
print(*test_gpu_fusion.compute_all())
"""


def test_distrust():
    digest, kernels = compute_all()
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "0"}
    done = subprocess.run(
        [sys.executable, "-c", DISTRUSTING], env=env, capture_output=True, text=True, cwd=Path(HERE)
    )
    assert done.returncode == 0, done.stderr
    plain = ["cpu"] if DRY else ["gather_2", "matvec_1", "matvec_2"]
    assert done.stdout.strip() == f"{digest} {plain}"
    fused = ["gather_gated", "matvec_added", "matvec_gated", "matvec_gated_normed"]
    assert kernels == (["cpu"] if DRY else [*fused, "matvec_normed_2"])
