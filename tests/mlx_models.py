"""Tiny random BF16 checkpoints of true architectures, as their makers name and lay out tensors.

Names and shapes come from mlx-lm's models, led back through what its `sanitize` does. Every matrix
is large enough to be packed, unless the true ones of its kind are not packed either.
"""

import dataclasses
import json
from collections.abc import Callable

import mlx.core as mx
import numpy as np
from checkpoints import Tensor, round_bf16, write_index, write_safetensors
from mlx.utils import tree_flatten
from mlx_lm import utils
from tokenizers import ByteLevelBPETokenizer

VOCAB = 600
TEXT = "The rain in Spain falls mainly on the plain, so the plain is where the rain falls."

COMMON = {
    "hidden_size": 264,
    "intermediate_size": 520,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "rms_norm_eps": 1e-5,
    "vocab_size": VOCAB,
    "max_position_embeddings": 4096,
    "rope_theta": 10000.0,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 0,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
# Where the heads share out the hidden size.
HEADS_OF_32 = {"hidden_size": 256, "num_key_value_heads": 8}
LLAMA = {**COMMON, "model_type": "llama", "head_dim": 64}
GEMMA_TEXT = {
    **COMMON,
    "model_type": "gemma4_text",
    "num_hidden_layers": 6,
    "head_dim": 64,
    "global_head_dim": 128,
    "num_global_key_value_heads": 2,
    "attention_k_eq_v": True,
    "num_kv_shared_layers": 0,
    "hidden_size_per_layer_input": 0,
    "sliding_window": 8,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2,
    "use_double_wide_mlp": False,
    "final_logit_softcapping": 30.0,
    "tie_word_embeddings": True,
}
QWEN35_TEXT = {
    **COMMON,
    "model_type": "qwen3_5_text",
    "num_hidden_layers": 4,
    "head_dim": 64,
    "full_attention_interval": 2,
    "linear_num_value_heads": 8,
    "linear_num_key_heads": 4,
    "linear_key_head_dim": 64,
    "linear_value_head_dim": 64,
    "linear_conv_kernel_dim": 4,
    "tie_word_embeddings": True,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 100000.0,
        "partial_rotary_factor": 0.25,
    },
}


# ---- From mlx-lm's parameters back to the tensors of a checkpoint


def keep(name, array):
    yield name, array


def to_gemma4(name, array):
    yield name.replace("language_model.model.", "model.language_model."), array


def to_qwen35(name, array):
    """The checkpoint holds norms less one, and the convolution as PyTorch has it."""
    if name.endswith("conv1d.weight"):
        array = array.swapaxes(1, 2)
    name = name.replace("language_model.model.", "model.language_model.")
    name = name.replace("language_model.lm_head.", "lm_head.")
    yield name, array


@dataclasses.dataclass(frozen=True)
class Family:
    config: dict
    names: Callable = keep
    extra: dict = dataclasses.field(default_factory=dict)  # tensors without a module: shapes
    fused_experts: bool = False
    separate_experts: str = ""  # "switch_mlp": as experts.0, experts.1, ...
    shards: int = 1


def nested(model_type, text_config, **more):
    return {"model_type": model_type, "vocab_size": VOCAB, "text_config": text_config, **more}


VISION = {
    "model.vision_tower.encoder.layers.0.self_attn.q_proj.weight": (256, 256),
    "model.embed_vision.embedding_projection.weight": (264, 256),
}
E_TYPE = {
    **GEMMA_TEXT,
    "attention_k_eq_v": False,
    "num_kv_shared_layers": 3,
    "hidden_size_per_layer_input": 256,
    "vocab_size_per_layer_input": VOCAB,
    "use_double_wide_mlp": True,
}
MOE = {
    **GEMMA_TEXT,
    "num_hidden_layers": 3,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
    "enable_moe_block": True,
    "num_experts": 6,
    "top_k_experts": 2,
    "moe_intermediate_size": 264,
}
SHARED_KV = {
    f"model.language_model.layers.{i}.self_attn.{part}": shape
    for i, rows in ((3, 256), (4, 256), (5, 512))
    for part, shape in (("k_proj.weight", (rows, 264)), ("v_proj.weight", (rows, 264)))
}
QWEN35_MOE_TEXT = {
    **QWEN35_TEXT,
    "model_type": "qwen3_5_moe_text",
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 256,
    "shared_expert_intermediate_size": 256,
    "num_hidden_layers": 2,
}
QWEN3_MOE = {
    **COMMON,
    "model_type": "qwen3_moe",
    "head_dim": 64,
    "num_hidden_layers": 2,
    "tie_word_embeddings": False,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 256,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "norm_topk_prob": True,
}

FAMILIES = {
    "llama": Family({**LLAMA, "tie_word_embeddings": True}, shards=2),
    "llama_untied": Family({**LLAMA, "tie_word_embeddings": False}),
    "llama_biases": Family(
        {**LLAMA, "attention_bias": True, "mlp_bias": True, "rope_scaling": LLAMA3_ROPE},
        extra={"model.layers.0.self_attn.rotary_emb.inv_freq": (32,)},
    ),
    "mistral": Family(
        {
            **LLAMA,
            "model_type": "mistral",
            "tie_word_embeddings": False,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            "sliding_window": 8,
        }
    ),
    "qwen2": Family({**COMMON, **HEADS_OF_32, "model_type": "qwen2", "tie_word_embeddings": True}),
    "qwen3": Family(
        {**COMMON, "model_type": "qwen3", "head_dim": 64, "tie_word_embeddings": False}
    ),
    "phi3": Family({**COMMON, **HEADS_OF_32, "model_type": "phi3", "tie_word_embeddings": False}),
    "glm4": Family(
        {**COMMON, "model_type": "glm4", "head_dim": 64, "attention_bias": True}
        | {"partial_rotary_factor": 0.5}
    ),
    "gemma4_12b": Family(nested("gemma4_unified", GEMMA_TEXT), to_gemma4, VISION, shards=2),
    "gemma4_e": Family(nested("gemma4", E_TYPE), to_gemma4, VISION | SHARED_KV),
    "gemma4_moe": Family(nested("gemma4", MOE), to_gemma4, VISION, fused_experts=True),
    "qwen3_5": Family(
        nested("qwen3_5", QWEN35_TEXT),
        to_qwen35,
        {"mtp.fc.weight": (264, 528), "model.visual.patch_embed.proj.weight": (256, 3, 2, 4, 4)},
    ),
    # Loaded by the same mechanism: experts in slices, and stacked from separate matrices.
    "qwen3_5_moe": Family(nested("qwen3_5_moe", QWEN35_MOE_TEXT), to_qwen35, fused_experts=True),
    "qwen3_moe": Family(QWEN3_MOE, separate_experts="switch_mlp"),
}


def model_shapes(config):
    """{parameter: shape} of mlx-lm's model."""
    kind = config["model_type"]
    known = {**json.loads(json.dumps(config)), "model_type": kind.replace("_unified", "")}
    model_class, args_class = utils._get_classes(known)
    model = model_class(args_class.from_dict(known))
    return {name: array.shape for name, array in tree_flatten(model.parameters())}


# ---- Values


def spread(name, shape, family):
    """Mean and deviation that keep activations finite and logits different from each other."""
    if "norm" in name and len(shape) == 1:
        shifted = family.names is to_qwen35 and not name.endswith("linear_attn.norm.weight")
        return (0.0 if shifted else 1.0), 0.1
    if len(shape) == 1:  # biases, scales
        return (0.5 if "scal" in name else 0.0), 0.2
    if name.endswith("conv1d.weight"):
        return 0.0, 0.5
    return 0.0, shape[-1] ** -0.5 * (3 if "embed_tokens" in name or "lm_head" in name else 1)


def is_matrix(name, shape):
    return len(shape) > 1 and not name.endswith("conv1d.weight")


def make_values(name, shape, rng, family):
    """float32."""
    if name.endswith("A_log"):
        return np.log(rng.uniform(1, 16, shape))
    values = rng.normal(*spread(name, shape, family), shape)
    if is_matrix(name, shape):
        # Exponents beyond the 15 most frequent, and zeros.
        values[rng.random(shape) < 0.01] *= 2.0**-40
        values[rng.random(shape) < 0.001] = 0
    return values


def make_tensor(name, values):
    if name.endswith("A_log"):
        return Tensor(name, "F32", values.shape, values.astype("<f4").tobytes())
    return Tensor(name, "BF16", values.shape, round_bf16(values).astype("<u2").tobytes())


def lay_out(values, family):
    """The tensors of the checkpoint, from {mlx-lm's parameter: values}, of numpy or MLX."""
    for name, array in values.items():
        if family.fused_experts and ".switch_" in name:
            stem = name[: name.index(".switch_")]
            stem = stem.removesuffix(".experts") + ".experts"
            if ".gate_proj" in name:
                up = values[name.replace(".gate_proj", ".up_proj")]
                join = mx.concatenate if isinstance(up, mx.array) else np.concatenate
                yield from family.names(f"{stem}.gate_up_proj", join([array, up], 1))
            elif ".down_proj" in name:
                yield from family.names(f"{stem}.down_proj", array)
        elif family.separate_experts and family.separate_experts in name:
            for expert, part in enumerate(array):
                yield name.replace(family.separate_experts, f"experts.{expert}"), part
        else:
            yield from family.names(name, array)


def make_model(directory, family, seed=0):
    """Writes a checkpoint with a tokenizer; returns the names of tensors without a module."""
    rng = np.random.default_rng(seed)
    shapes = model_shapes(family.config)
    values = {name: make_values(name, shape, rng, family) for name, shape in shapes.items()}
    tensors = [make_tensor(name, array) for name, array in lay_out(values, family)]
    tensors += [
        make_tensor(name, rng.normal(0, 0.02, shape)) for name, shape in family.extra.items()
    ]
    directory.mkdir()
    write_shards(directory, tensors, family.shards)
    (directory / "config.json").write_text(json.dumps(family.config, indent=2))
    make_tokenizer(directory)
    return sorted(family.extra)


def write_shards(directory, tensors, count):
    if count == 1:
        write_safetensors(directory / "model.safetensors", tensors, metadata={"format": "pt"})
        return
    shards = {
        f"model-{i + 1:05}-of-{count:05}.safetensors": tensors[i::count] for i in range(count)
    }
    for file, members in shards.items():
        write_safetensors(directory / file, members, metadata={"format": "pt"})
    write_index(directory, shards)


def make_tokenizer(directory):
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(
        [TEXT], vocab_size=300, special_tokens=["<s>", "</s>"], show_progress=False
    )
    tokenizer.save(str(directory / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
