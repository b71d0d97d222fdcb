"""The published package binade==0.1.1 beside ours: it writes the same shards and index, reads our
packs, and we read its packs, those of earlier versions too. ORACLE_PYTHON names a Python that has
it; without one every test here fails.
"""

import functools
import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from checkpoints import (
    BF16_KINDS,
    INDEX,
    SHARD,
    Tensor,
    every_bf16,
    make_tensor,
    make_weight,
    read_header,
    read_safetensors,
    read_tree,
    write_index,
    write_safetensors,
)
from cli_harness import run, run_well, work_dir

ORACLE_PYTHON = os.environ["ORACLE_PYTHON"]
MANIFEST = "binade_pack.json"
EVERY_CLASS = ["linear", "embed", "ple", "mm", "other"]
SOUND = "structure sound, original not proven"
Q_PROJ = "model.layers.0.self_attn.q_proj.weight"
EMBED = "model.embed_tokens.weight"


def run_oracle(jobs):
    """What failed in each job, or None."""
    driver = Path(__file__).with_name("oracle_jobs.py")
    p = subprocess.run(
        [ORACLE_PYTHON, str(driver)], input=json.dumps(jobs).encode(), capture_output=True
    )
    assert p.returncode == 0, p.stderr.decode()
    return json.loads(p.stdout)


# ---- Checkpoints that the package can pack


class Case:
    """A checkpoint: {file name: (tensors, options of write_safetensors)}."""

    def __init__(self, shards, classes=("linear", "embed"), index=None, files=None):
        self.shards = shards
        self.classes = list(classes)
        self.index = len(shards) > 1 if index is None else index
        self.files = files or {"config.json": b'{"model_type": "test"}\n'}

    def write(self, directory):
        directory.mkdir(parents=True)
        for name, (tensors, options) in self.shards.items():
            write_safetensors(directory / name, tensors, **options)
        if self.index:
            write_index(directory, {name: tensors for name, (tensors, _) in self.shards.items()})
        for name, data in self.files.items():
            (directory / name).write_bytes(data)


def one_shard(tensors, classes=("linear", "embed"), **options):
    return Case({SHARD: (tensors, options)}, classes)


CARRIED_DTYPES = ["F32", "I64", "BOOL", "F64", "U8", "I8", "U16", "I16", "F16", "U32", "I32", "U64"]
# Names of each class, and names that nearly are.
CLASS_NAMES = [
    "model.layers.3.self_attn.q_proj.weight",
    "model.layers.3.self_attn.k_proj.bias",
    "model.layers.3.self_attn.v_proj",
    "model.layers.3.self_attn.xo_proj.weight",
    "model.layers.3.attn.qkv_proj.weight",
    "model.layers.3.attn.out_proj.weight",
    "model.layers.3.linear_attn.in_proj_qkvz.weight",
    "model.layers.3.linear_attn.A_log",
    "model.layers.3.mlp.gate_up_proj.weight",
    "model.layers.3.mlp.experts.0.down_proj.weight",
    "model.layers.3.mlp.experts.gate_up_proj",
    "model.layers.3.mlp.gate.weight",
    "model.layers.3.block.w1.weight",
    "model.layers.3.block.w4.weight",
    "w3.weight",
    "weight",
    "experts",
    "experts.weight",
    "model.layers.3.per_layer_input_gate.weight",
    "model.per_layer_model_projection.weight",
    "model.per_layer_projections.weight",
    "model.embed_tokens_per_layer.weight",
    "model.embed_tokens_per_layer2.weight",
    "vision_tower.embed_tokens_per_layer.weight",
    "my_embed_tokens.weight",
    "model.embed_tokens.weight.1",
    "lm_head.weight",
    "xlm_head.weight",
    "lm_head",
    "audio_tower.lm_head.weight",
    "visual.blocks.0.q_proj.weight",
    "model.visual",
    "model.visuals.q_proj.weight",
    "model.multi_modal_projector.linear.weight",
    "xmm_projectorx.weight",
    "model.embed_vision.embedding.weight",
    "model.norm.weight",
]
ODD_NAMES = [
    "",
    " ",
    '"quoted" \\ back',
    "tab\tnew\nline\rfeed\fback\b",
    "nul\0inside",
    "\x01\x1f\x7f\x80",
    "größe",
    "重み.weight",
    "\U0001f600",
    "\u2028\uffff\U0010ffff",
    "a/b/../c",
    "x.raw",
    "y.bits",
    ".table",
    "__metadata",
    "%s%n",
    "e\u0301",
]


def make_classes_case(shape, seed):
    rng = np.random.default_rng(seed)
    return [make_weight(name, shape, rng) for name in CLASS_NAMES]


def make_kinds_case(shape, seed):
    rng = np.random.default_rng(seed)
    tensors = [make_weight(f"{kind}.{EMBED}", shape, rng, kind) for kind in BF16_KINDS]
    patterns = np.frombuffer(every_bf16(), "<u2")
    tensors.append(Tensor(f"all.{EMBED}", "BF16", (512, 128), patterns.tobytes()))
    tensors.append(
        Tensor(f"mixed.{EMBED}", "BF16", (64, 1024), rng.permutation(patterns).tobytes())
    )
    ragged = rng.permutation(patterns)[: 331 * 197]
    tensors.append(Tensor(f"ragged.{EMBED}", "BF16", (331, 197), ragged.tobytes()))
    return tensors


def make_carried_case():
    rng = np.random.default_rng(1)
    tensors = [make_weight(EMBED, (5, 7), rng)]
    for dtype in [*CARRIED_DTYPES, "BF16"]:
        for shape in ((), (1,), (0,), (3,), (0, 4), (2, 3), (2, 0, 3), (1, 2, 3, 4)):
            tensors.append(make_tensor(f"{dtype}.{shape}", dtype, shape, rng))
    return [tensors[i] for i in rng.permutation(len(tensors))]


def make_odd_names_case():
    rng = np.random.default_rng(2)
    tensors = []
    for i, name in enumerate(ODD_NAMES):
        tensors.append(make_tensor(name, CARRIED_DTYPES[i % 12], (i % 3,), rng))
        tensors.append(make_weight(f"{name}.embed_tokens.weight", (i + 1, 3 * i + 1), rng))
    return tensors


def make_sizes_case():
    """Every width of a last tile, and many short rows."""
    rng = np.random.default_rng(3)
    widths = [*range(1, 130), 255, 256, 257, 1000]
    tensors = [make_weight(f"{k}.{EMBED}", (3, k), rng, "geometric") for k in widths]
    tensors.append(make_weight(f"tall.{EMBED}", (70000, 1), rng))
    tensors.append(make_weight(f"long.{EMBED}", (1, 300000), rng, "wide"))
    tensors.append(make_weight(f"deep.{EMBED}", (5, 7, 130), rng, "rows"))
    return tensors


def make_orders_case():
    """Data in another order than the header, with empty tensors, gaps and odd text."""
    rng = np.random.default_rng(4)
    tensors = []
    for i in range(40):
        tensors.append(make_weight(f"{i}.{EMBED}", (i % 5 + 1, 33), rng))
        tensors.append(make_tensor(f"{i}.ids", "U8", (i % 4,), rng))
    order = [int(i) for i in rng.permutation(len(tensors))]
    gaps = {k: rng.bytes(k % 11) for k in range(0, 60, 7)}
    return tensors, {
        "data_order": order,
        "gaps": gaps,
        "trailing": b"the end",
        "spacing": "odd",
        "metadata": {"format": "pt", "größe": "\u2028"},
        "metadata_at": 17,
        "keys": ("data_offsets", "shape", "dtype"),
        "padding": 33,
    }


RANDOM_NAMES = [
    "model.layers.{}.self_attn.q_proj.weight",
    "model.layers.{}.mlp.experts.down_proj",
    "model.layers.{}.input_layernorm.weight",
    "model.layers.{}.linear_attn.norm",
    "model.layers.{}.router",
    "{}.embed_tokens.weight",
    "{}.lm_head.weight",
    "embed_tokens_per_layer.{}",
    "vision_tower.{}.weight",
    "größe {}\n",
]


def make_random_tensor(rng, number):
    name = RANDOM_NAMES[rng.integers(len(RANDOM_NAMES))].format(number)
    if rng.random() < 0.25:
        shape = tuple(int(n) for n in rng.integers(1, 9, rng.integers(0, 4)))
        return make_tensor(name, CARRIED_DTYPES[rng.integers(12)], shape, rng)
    kind = BF16_KINDS[rng.integers(len(BF16_KINDS))]
    if rng.random() < 0.2:
        shape = rng.choice([255, 256, 257, 300, 384], 2)
    else:
        shape = [rng.integers(1, 30), rng.integers(1, 400)]
    if rng.random() < 0.3:
        shape = [rng.integers(1, 4), *shape]
    return make_weight(name, tuple(int(n) for n in shape), rng, kind)


def make_random_shard(rng, first):
    count = int(rng.integers(0, 12))
    tensors = [make_random_tensor(rng, first + i) for i in range(count)]
    options = {
        "spacing": ["compact", "spaced", "odd"][rng.integers(3)],
        "ensure_ascii": bool(rng.integers(2)),
        "metadata": [None, "null", {}, {"format": "pt"}][rng.integers(4)],
        "metadata_at": int(rng.integers(count + 1)),
        "padding": int(rng.integers(9)),
    }
    if rng.random() < 0.5:
        options["data_order"] = [int(i) for i in rng.permutation(count)]
    if rng.random() < 0.3 and count:
        options["gaps"] = {int(rng.integers(count)): rng.bytes(int(rng.integers(1, 99)))}
    if rng.random() < 0.2:
        options["trailing"] = rng.bytes(3)
    return tensors, options


def make_random_case(seed):
    rng = np.random.default_rng([7, seed])
    nshards = int(rng.integers(1, 5))
    shards = {}
    for s in range(nshards):
        name = SHARD if nshards == 1 else f"model-{s + 1:05}-of-{nshards:05}.safetensors"
        shards[name] = make_random_shard(rng, 100 * s)
    index = nshards > 1 and bool(rng.integers(3))
    if index:  # it can name only shards that hold tensors
        shards = {name: shard for name, shard in shards.items() if shard[0]}
    index = index and bool(shards)
    if not shards:
        shards = {SHARD: ([], {})}
    classes = [c for c in EVERY_CLASS if rng.random() < 0.6] or ["linear"]
    return Case(shards, classes, index)


@functools.cache
def make_cases():
    tensors, options = make_orders_case()
    rng = np.random.default_rng(5)
    cases = {
        "default classes": one_shard(make_classes_case((256, 256), 1)),
        "every class": one_shard(make_classes_case((5, 77), 2), EVERY_CLASS),
        "experts": one_shard(make_classes_case((2, 256, 257), 3), ["linear"]),
        "too small": one_shard(make_classes_case((2, 255, 256), 4), ["linear"]),
        "kinds": one_shard(make_kinds_case((33, 500), 5)),
        "whole tiles": one_shard(make_kinds_case((64, 256), 6)),
        "carried": one_shard(make_carried_case()),
        "odd names": one_shard(make_odd_names_case()),
        "sizes": one_shard(make_sizes_case()),
        "orders": one_shard(tensors, **options),
        "orders, every class": one_shard(tensors, EVERY_CLASS, **options),
        "several pieces": one_shard([make_weight(Q_PROJ, (1500, 2999), rng, "wide")]),
        "nothing packable": one_shard([make_tensor("a", "F32", (3, 3), rng)]),
        "no tensors": one_shard([]),
        "one class each": one_shard(make_classes_case((3, 9), 8), ["mm"]),
    }
    cases.update({f"random {seed}": make_random_case(seed) for seed in range(50)})
    return cases


CASE_NAMES = list(make_cases())
# The package does not read even its own packs that hold no tensor at all.
READABLE = [name for name, case in make_cases().items() if any(t for t, _ in case.shards.values())]


def case_dir(name, kind):
    return work_dir() / "oracle" / name / kind


@pytest.fixture(scope="module")
def packs():
    """Writes every case; packs it by us (ours1, bare1 and so on) and by the package (theirs1)."""
    jobs = []
    for name, case in make_cases().items():
        model = case_dir(name, "model")
        case.write(model)
        for form in "12":
            classes = ",".join(case.classes)
            args = ["pack", model, "--format", form, "--classes", classes, "-q"]
            run_well(*args, "--out", case_dir(name, f"ours{form}"))
            run_well(*args, "--out", case_dir(name, f"bare{form}"), "--no-hash")
            out = str(case_dir(name, f"theirs{form}"))
            job = {"do": "pack", "source": str(model), "out": out}
            jobs.append({**job, "format": form, "classes": case.classes})
    failures = run_oracle(jobs)
    for job, failure in zip(jobs, failures, strict=True):
        assert failure is None, (job["source"], failure)
    return case_dir


@pytest.fixture(scope="module")
def compared(packs):
    """{pack: what the package finds wrong in it, or None}."""
    jobs = [
        {
            "do": "compare",
            "packed": str(packs(name, kind)),
            "original": str(packs(name, "model")),
        }
        for name in READABLE
        for kind in ("ours1", "ours2", "bare1", "bare2")
    ]
    return dict(zip([job["packed"] for job in jobs], run_oracle(jobs), strict=True))


FORMATS = pytest.mark.parametrize("form", "12")
CASES = pytest.mark.parametrize("name", CASE_NAMES)


def test_cases_are_what_they_say():
    """The random ones reach several shards, an index, empty shards and every class."""
    cases = list(make_cases().values())
    assert sum(len(case.shards) > 1 for case in cases) > 10
    assert sum(case.index for case in cases) > 5
    assert sum(len(case.shards) > 1 and not case.index for case in cases) > 5
    assert any(not tensors for case in cases for tensors, _ in case.shards.values())
    assert {c for case in cases for c in case.classes} == set(EVERY_CLASS)


# ---- Writing


@FORMATS
@CASES
def test_same_bytes(packs, name, form):
    theirs = packs(name, f"theirs{form}")
    names = sorted(path.name for path in theirs.iterdir())
    for kind in (f"ours{form}", f"bare{form}"):
        ours = packs(name, kind)
        assert sorted(path.name for path in ours.iterdir()) == names
        for file in set(names) - {MANIFEST}:
            assert (ours / file).read_bytes() == (theirs / file).read_bytes(), file


@FORMATS
@CASES
def test_same_manifest(packs, name, form):
    theirs = json.loads((packs(name, f"theirs{form}") / MANIFEST).read_bytes())
    for kind in (f"ours{form}", f"bare{form}"):
        ours = json.loads((packs(name, kind) / MANIFEST).read_bytes())
        assert list(ours)[: len(theirs)] == list(theirs)
        for key in set(theirs) - {"git", "seconds", "tensors", "output_bytes"}:
            assert ours[key] == theirs[key], key
        # The package leaves out shards without tensors.
        shards = packs(name, kind).glob("*.safetensors")
        assert ours["output_bytes"] == sum(path.stat().st_size for path in shards)
        assert list(ours["tensors"].items()) == list(theirs["tensors"].items())
        assert isinstance(ours["git"], str)
        assert isinstance(ours["seconds"], float)


@FORMATS
@CASES
def test_round_trip(packs, name, form, tmp_path):
    ours, model = packs(name, f"ours{form}"), packs(name, "model")
    assert run_well("verify", ours, "--against", model, "--json").json["result"] == "proven"
    run_well("unpack", ours, "--out", tmp_path / "out")
    assert read_tree(tmp_path / "out") == read_tree(model)


# ---- Reading


@pytest.mark.parametrize("kind", ["ours1", "ours2", "bare1", "bare2"])
@pytest.mark.parametrize("name", READABLE)
def test_package_reads_ours(compared, name, kind):
    assert compared[str(case_dir(name, kind))] is None


def assert_same_tensors(restored, original):
    """Names, dtypes, shapes and bytes, shard by shard."""
    names = sorted(path.name for path in original.glob("*.safetensors"))
    assert sorted(path.name for path in restored.glob("*.safetensors")) == names
    for name in names:
        assert read_safetensors(restored / name) == read_safetensors(original / name)


@FORMATS
@CASES
def test_reads_theirs(packs, name, form, tmp_path):
    theirs, model, out = packs(name, f"theirs{form}"), packs(name, "model"), tmp_path / "out"
    result = run_well("unpack", theirs, "--out", out, "--json").json
    assert result["restored"] == "tensors"
    assert_same_tensors(out, model)
    nshards = len(list(theirs.glob("*.safetensors")))
    assert (out / INDEX).exists() == (nshards > 1)
    if nshards > 1:
        weight_map = json.loads((out / INDEX).read_bytes())["weight_map"]
        shards = {path.name: read_safetensors(path) for path in out.glob("*.safetensors")}
        assert weight_map == {name: shard for shard, names in shards.items() for name in names}
    assert (out / "config.json").read_bytes() == (model / "config.json").read_bytes()
    assert not (out / MANIFEST).exists()
    assert run_well("verify", theirs, "--against", model, "--json").json["equal"] is True


@FORMATS
def test_verify_theirs(packs, form):
    theirs = packs("kinds", f"theirs{form}")
    result = run_well("verify", theirs)
    assert SOUND in result.out
    assert run_well("verify", theirs, "--json").json["result"] == SOUND


@FORMATS
def test_verify_theirs_against_another(packs, form, tmp_path):
    theirs = packs("kinds", f"theirs{form}")
    tensors = list(make_cases()["kinds"].shards[SHARD][0])
    last = tensors[-1]
    data = last.data[:-1] + bytes([last.data[-1] ^ 1])
    variants = {
        "another bit": [*tensors[:-1], Tensor(last.name, last.dtype, last.shape, data)],
        "another shape": [
            *tensors[:-1],
            Tensor(last.name, last.dtype, last.shape[::-1], last.data),
        ],
        "another dtype": [*tensors[:-1], Tensor(last.name, "F16", last.shape, last.data)],
        "another name": [*tensors[:-1], Tensor("x", last.dtype, last.shape, last.data)],
        "one less": tensors[:-1],
        "one more": [*tensors, Tensor("x", "U8", (1,), b"x")],
    }
    for name, other in variants.items():
        model = tmp_path / name
        one_shard(other).write(model)
        result = run("verify", theirs, "--against", model)
        assert result.code == 1, name


# ---- Packs of earlier versions, which are marked in config.json

CONFIGS = {
    "last": b'{\n  "model_type": "test",\n  "n": 1.50%s\n}\n',
    "first": b'{%s\n\t"model_type":"test", "n" : 1e0 }',
    "middle": b'{"a": [1, {"b": "}"}]%s , "n": "\\u00e9\xc3\xa9"}\n\n',
    "alone": b"{%s\n}",
}


def mark_config(kind, form):
    """config.json with the mark as the member %s stands for, and without."""
    mark = b'"quantization_config": {"quant_method": "binade", "version": "%s", "tile": 128}'
    mark %= form.encode()
    first = {"first": b"\n  " + mark + b" ,", "alone": b"\n  " + mark}
    return CONFIGS[kind] % first.get(kind, b" ,\n  " + mark), CONFIGS[kind] % b""


@pytest.mark.parametrize("manifest", ["without a mark", "absent"])
@pytest.mark.parametrize("kind", CONFIGS)
@FORMATS
def test_reads_earlier(packs, form, kind, manifest, tmp_path):
    packed, out, model = tmp_path / "packed", tmp_path / "out", packs("kinds", "model")
    shutil.copytree(packs("kinds", f"theirs{form}"), packed)
    marked, unmarked = mark_config(kind, form)
    (packed / "config.json").write_bytes(marked)
    if manifest == "absent":
        (packed / MANIFEST).unlink()
    else:
        report = json.loads((packed / MANIFEST).read_bytes())
        del report["binade"]
        (packed / MANIFEST).write_text(json.dumps(report, indent=1) + "\n")
    assert SOUND in run_well("verify", packed).out
    run_well("unpack", packed, "--out", out)
    restored = (out / "config.json").read_bytes()
    assert json.loads(restored) == json.loads(unmarked)
    assert restored.split() == unmarked.split()
    assert_same_tensors(out, model)


def test_earlier_as_the_package_wrote_it(packs, tmp_path):
    """Indented by 2, the mark last: all other bytes stay."""
    packed, out = tmp_path / "packed", tmp_path / "out"
    shutil.copytree(packs("kinds", "theirs2"), packed)
    (packed / MANIFEST).unlink()
    config = {"model_type": "test", "list": [1, 2], "größe": 1e-5}
    mark = {"quant_method": "binade", "version": "2", "tile": 128}
    marked = json.dumps({**config, "quantization_config": mark}, indent=2) + "\n"
    (packed / "config.json").write_text(marked)
    run_well("unpack", packed, "--out", out)
    assert (out / "config.json").read_text() == json.dumps(config, indent=2) + "\n"


def test_another_quantization_is_no_mark(packs, tmp_path):
    """What another method wrote into config.json neither marks a pack nor is removed."""
    packed, out = tmp_path / "packed", tmp_path / "out"
    shutil.copytree(packs("kinds", "theirs2"), packed)
    config = b'{"quantization_config": {"quant_method": "gptq", "version": "2", "tile": 128}}'
    (packed / "config.json").write_bytes(config)
    run_well("unpack", packed, "--out", out)
    assert (out / "config.json").read_bytes() == config
    (packed / MANIFEST).unlink()
    assert run("verify", packed).code == 2


# ---- What the package cannot pack


def make_failing_cases():
    rng = np.random.default_rng(6)
    # Sixty characters become 360 in the header, more than is reserved for all.
    long_names = [make_weight(f"{'重み' * 60}{i}.{EMBED}", (2, 3), rng) for i in range(20)]
    emoji = [make_tensor("\U0001f600" * 50 + str(i), "U8", (1,), rng) for i in range(20)]
    weight = make_weight(EMBED, (4, 300), rng)
    part = make_tensor(f"{EMBED}.raw", "U8", (4, 300), rng)
    cases = {
        "long names": one_shard(long_names),
        "emoji": one_shard(emoji),
        "no rows": one_shard([weight, make_weight(f"x.{EMBED}", (0, 5), rng)]),
        "no columns": one_shard([weight, make_weight(f"x.{EMBED}", (5, 0), rng)]),
        "empty experts": one_shard([weight, make_weight(f"x.{EMBED}", (0, 4, 0), rng)]),
        "carried without columns": one_shard([weight, make_tensor("x", "F32", (5, 0), rng)]),
        "collision": one_shard([weight, part]),
    }
    for dtype in ("F8_E4M3", "F8_E5M2", "F8_E8M0", "F4", "F6_E2M3", "C64"):
        cases[dtype] = one_shard([weight, make_tensor("x", dtype, (4, 8), rng)])
    return cases


@pytest.fixture(scope="module")
def failing():
    """{case: the package's failures for formats 1 and 2}, the models written."""
    jobs = []
    for name, case in make_failing_cases().items():
        model = case_dir(f"fails: {name}", "model")
        case.write(model)
        for form in "12":
            out = str(case_dir(f"fails: {name}", f"theirs{form}"))
            job = {"do": "pack", "source": str(model), "out": out}
            jobs.append({**job, "format": form, "classes": case.classes})
    failures = run_oracle(jobs)
    return {name: failures[2 * i : 2 * i + 2] for i, name in enumerate(make_failing_cases())}


@FORMATS
@pytest.mark.parametrize("name", list(make_failing_cases()))
def test_packs_what_the_package_cannot(failing, name, form, tmp_path):
    assert failing[name][int(form) - 1] is not None
    model, packed, bare = case_dir(f"fails: {name}", "model"), tmp_path / "p", tmp_path / "bare"
    run_well("pack", model, "--out", packed, "--format", form)
    run_well("pack", model, "--out", bare, "--format", form, "--no-hash")
    report = run_well("verify", packed, "--against", model, "--json").json
    assert (report["result"], report["equal"]) == ("proven", True)
    run_well("verify", bare, "--against", model)
    run_well("unpack", packed, "--out", tmp_path / "out")
    run_well("unpack", bare, "--out", tmp_path / "tensors")
    assert read_tree(tmp_path / "out") == read_tree(model)
    assert_same_tensors(tmp_path / "tensors", model)


@FORMATS
@pytest.mark.parametrize("name", ["long names", "emoji"])
def test_header_beyond_its_reserve(failing, name, form, tmp_path):
    """Has its exact length, and the package reads the pack."""
    model, packed = case_dir(f"fails: {name}", "model"), tmp_path / "packed"
    run_well("pack", model, "--out", packed, "--format", form)
    _, start = read_header(packed / SHARD)
    assert (packed / SHARD).read_bytes()[start - 2 : start] == b"}}"
    assert run_oracle([{"do": "compare", "packed": str(packed), "original": str(model)}]) == [None]
