"""Which tensors become which parameters is learnt from a model's own `sanitize`, whatever it does.

Models here have no layers; a dictionary stands for the checkpoint and counts what is read.
"""

import pytest

mx = pytest.importorskip("mlx.core")

import mlx.nn as nn  # noqa: E402
from binade.mlx.errors import ModelError  # noqa: E402
from binade.mlx.placement import Part, Placement  # noqa: E402

E, R, K = 3, 8, 6


class Checkpoint:
    path = "somewhere"

    def __init__(self, arrays, packed):
        self.arrays = arrays
        self.packed = packed
        self.read = []

    def names(self):
        return list(self.arrays)

    def info(self, name):
        dtype = {mx.bfloat16: "BF16", mx.float32: "F32", mx.uint8: "F8_E4M3"}
        a = self.arrays[name]
        return {"dtype": dtype[a.dtype], "shape": a.shape, "packed": name in self.packed}

    def load_array(self, name):
        self.read.append(name)
        return mx.array(self.arrays[name])


class Model(nn.Module):
    """Its parameters are what its sanitize makes of the tensors."""

    model_type = "odd"

    def __init__(self, checkpoint, sanitize):
        super().__init__()
        self._sanitize = sanitize
        for name, array in sanitize(dict(checkpoint.arrays)).items():
            setattr(self, name, mx.zeros(array.shape))

    def sanitize(self, weights):
        return self._sanitize(weights)


def make(sanitize, *shapes, packed=True, dtype=mx.bfloat16):
    mx.random.seed(len(shapes))
    arrays = {f"t{i}": mx.random.normal(shape).astype(dtype) for i, shape in enumerate(shapes)}
    checkpoint = Checkpoint(arrays, set(arrays) if packed else set())
    return Placement(Model(checkpoint, sanitize), checkpoint), checkpoint


def check(sanitize, parts, *shapes, **options):
    """The parts are these, nothing was read, and the arrays are those of sanitize."""
    placement, checkpoint = make(sanitize, *shapes, **options)
    assert placement.parts == parts
    assert checkpoint.read == []
    found = dict(placement.arrays(placement.parts))
    expected = sanitize(dict(checkpoint.arrays))
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        assert mx.array_equal(found[name], array)
    used = {source for part in parts.values() for source in part.sources}
    assert placement.dropped == sorted(set(checkpoint.arrays) - used)
    return checkpoint


def whole(name, rows=R):
    return Part((name,), (0, rows))


def test_renamed_and_dropped():
    check(
        lambda w: {"a": w["t1"], "b": w["t0"]}, {"a": whole("t1"), "b": whole("t0")}, *[(R, K)] * 3
    )


def test_without_sanitize():
    class Bare(nn.Module):
        def __init__(self):
            super().__init__()
            self.t0 = mx.zeros((R, K))

    checkpoint = Checkpoint({"t0": mx.ones((R, K)), "t1": mx.ones((2,))}, set())
    placement = Placement(Bare(), checkpoint)
    assert placement.parts == {"t0": whole("t0")}
    assert placement.dropped == ["t1"]


def test_one_tensor_twice():
    checkpoint = check(
        lambda w: {"a": w["t0"], "b": w["t0"], "c": w["t0"] + 1},
        {"a": whole("t0"), "b": whole("t0"), "c": Part(("t0",))},
        (R, K),
    )
    assert checkpoint.read == ["t0"]


@pytest.mark.parametrize("lead", [(), (E,)])
def test_rows(lead):
    """Halves, slices, copies of them, reshaping that changes nothing."""

    def sanitize(w):
        gate, up = map(mx.contiguous, mx.split(w["t0"], 2, axis=-2))
        middle = w["t0"][..., 2:5, :]
        same = mx.contiguous(w["t0"].reshape(w["t0"].shape))
        return {"gate": gate, "up": up, "middle": middle, "same": same}

    parts = {"gate": (0, 4), "up": (4, 8), "middle": (2, 5), "same": (0, 8)}
    parts = {name: Part(("t0",), rows) for name, rows in parts.items()}
    check(sanitize, parts, (*lead, R, K))


COMPUTED = {
    "transposed": lambda a: a.swapaxes(-1, -2),
    "columns": lambda a: a[..., 1:4],
    "columns reversed": lambda a: a[..., ::-1],
    "every second row": lambda a: a[..., ::2, :],
    "rows reversed": lambda a: a[..., ::-1, :],
    "added": lambda a: a + 1,
    "added to rows": lambda a: a[..., 1:3, :] + 1,
    "clipped": lambda a: mx.clip(a, -1, 1),
    "absolute": mx.abs,
    "maximum": lambda a: mx.maximum(a, 0),
    "other dtype": lambda a: a.astype(mx.float32),
    "other shape": lambda a: a.reshape(-1, 2 * a.shape[-1]),
    "rows twice": lambda a: mx.concatenate([a, a], axis=-2),
    "by shape": lambda a: a[..., :4, :] if a.shape[-1] == K and a.shape[-2] == R else a[:0],
    "refuses other shapes": lambda a: a[..., :4, :].reshape(-1, K),
}


@pytest.mark.parametrize("name", COMPUTED)
@pytest.mark.parametrize("lead", [(), (E,)])
def test_computed(name, lead):
    """Anything that is not rows in their order, or that depends on the shape, is computed."""
    check(lambda w: {"a": COMPUTED[name](w["t0"])}, {"a": Part(("t0",))}, (*lead, R, K))


def test_experts_in_another_order():
    check(lambda w: {"a": w["t0"][::-1]}, {"a": Part(("t0",))}, (E, R, K))
    check(lambda w: {"a": w["t0"][:2]}, {"a": Part(("t0",))}, (E, R, K))
    check(lambda w: {"a": w["t0"].flatten(0, 1)}, {"a": Part(("t0",))}, (E, R, K))


def test_stacked():
    checkpoint = check(
        lambda w: {"a": mx.stack([w["t2"], w["t0"]]), "b": w["t1"]},
        {"a": Part(("t0", "t2")), "b": whole("t1")},
        *[(R, K)] * 3,
    )
    assert sorted(checkpoint.read) == ["t0", "t1", "t2"]


def test_constants():
    check(
        lambda w: {"a": mx.arange(4), "b": mx.array(2.0), "c": w["t0"][0, 0]},
        {"a": Part(()), "b": Part(()), "c": Part(("t0",))},
        (R, K),
    )


def test_same_result_twice():
    def sanitize(w):
        shifted = w["t0"] + 1
        return {"a": shifted, "b": shifted, "c": w["t1"].reshape(w["t1"].shape)}

    parts = {"a": Part(("t0",)), "b": Part(("t0",)), "c": whole("t1")}
    check(sanitize, parts, (R, K), (R, K))


def test_unpacked():
    """Only packed tensors are asked for their rows."""
    check(
        lambda w: {"a": w["t0"][:4], "b": w["t1"], "c": w["t2"]},
        {"a": Part(("t0",)), "b": Part(("t1",), (0, 0)), "c": Part(("t2",), (0, 0))},
        *[(R, K), (5,), ()],
        packed=False,
        dtype=mx.float32,
    )


def test_many():
    """More than MLX takes as keywords."""
    n = 1500

    def sanitize(w):
        return {f"p{i}": w[f"t{i}"] + w[f"t{(i + 1) % n}"] for i in range(n)}

    placement, _ = make(sanitize, *[(2, 2)] * n)
    assert placement.parts == {
        f"p{i}": Part(tuple(sorted((f"t{i}", f"t{(i + 1) % n}")))) for i in range(n)
    }


def test_memory_of_one_group():
    """No more than the sources of one parameter are read ahead."""
    placement, checkpoint = make(
        lambda w: {f"p{i}": mx.stack([w[f"t{2 * i}"], w[f"t{2 * i + 1}"]]) for i in range(3)},
        *[(R, K)] * 6,
    )
    for i, _ in enumerate(placement.arrays(placement.parts)):
        assert len(checkpoint.read) == 2 * (i + 1)


def test_failures():
    checkpoint = Checkpoint({"t0": mx.ones((R, K))}, {"t0"})

    class Fixed(nn.Module):
        model_type = "odd"

        def __init__(self, **parameters):
            super().__init__()
            for name, array in parameters.items():
                setattr(self, name, array)

    with pytest.raises(ModelError, match="somewhere: the model's parameters t1 are missing"):
        Placement(Fixed(t1=mx.zeros((1,))), checkpoint)
    with pytest.raises(ModelError, match=r"parameter t0 has shape \(8, 6\), the model wants \(8,"):
        Placement(Fixed(t0=mx.zeros((8, 7))), checkpoint)

    class Failing(Fixed):
        def sanitize(self, weights):
            return weights["t9"]

    with pytest.raises(ModelError, match="cannot take these tensors as a odd: KeyError: 't9'"):
        Placement(Failing(), checkpoint)
