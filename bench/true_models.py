"""True configurations of models, and mlx-lm's models of them. Tests share them with benchmarks.

All are their makers' configurations as remembered, not read from files. Where one errs, another
shape is measured or tested; nothing is proven by it.
"""

import copy
import json

import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm import utils
from mlx_lm.models.switch_layers import SwitchLinear

COMMON = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 0}


def llama_rope(factor):
    return {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }


def nested(model_type, text):
    return {"model_type": model_type, "vocab_size": text["vocab_size"], "text_config": text}


def gemma_layers(n, period):
    return [("full" if i % period == period - 1 else "sliding") + "_attention" for i in range(n)]


LLAMA = {
    **COMMON,
    "model_type": "llama",
    "num_key_value_heads": 8,
    "head_dim": 128,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
}
GEMMA = {
    **COMMON,
    "model_type": "gemma4_text",
    "head_dim": 256,
    "global_head_dim": 512,
    "rms_norm_eps": 1e-6,
    "vocab_size": 262144,
    "max_position_embeddings": 131072,
    "sliding_window": 1024,
    "use_double_wide_mlp": False,
    "final_logit_softcapping": 30.0,
    "tie_word_embeddings": True,
    "num_kv_shared_layers": 0,
    "hidden_size_per_layer_input": 0,
}
MODELS = {
    "Llama 3.1 8B": {
        **LLAMA,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "rope_scaling": llama_rope(8.0),
        "tie_word_embeddings": False,
    },
    "Llama 3.2 3B": {
        **LLAMA,
        "hidden_size": 3072,
        "intermediate_size": 8192,
        "num_hidden_layers": 28,
        "num_attention_heads": 24,
        "rope_scaling": llama_rope(32.0),
        "tie_word_embeddings": True,
    },
    "Gemma 4 12B": nested(
        "gemma4_unified",
        {
            **GEMMA,
            "hidden_size": 3840,
            "intermediate_size": 15360,
            "num_hidden_layers": 48,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "num_global_key_value_heads": 1,
            "attention_k_eq_v": True,
            "layer_types": gemma_layers(48, 6),
        },
    ),
    "Gemma 4 E4B": nested(
        "gemma4",
        {
            **GEMMA,
            "hidden_size": 2560,
            "intermediate_size": 10240,
            "num_hidden_layers": 42,
            "num_attention_heads": 8,
            "num_key_value_heads": 2,
            "attention_k_eq_v": False,
            "sliding_window": 512,
            "num_kv_shared_layers": 18,
            "hidden_size_per_layer_input": 256,
            "vocab_size_per_layer_input": 262144,
            "layer_types": gemma_layers(42, 6),
        },
    ),
    "Gemma 4 26B-A4B": nested(
        "gemma4",
        {
            **GEMMA,
            "hidden_size": 2816,
            "intermediate_size": 2112,
            "num_hidden_layers": 30,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "num_global_key_value_heads": 2,
            "attention_k_eq_v": True,
            "layer_types": gemma_layers(30, 6),
            "enable_moe_block": True,
            "num_experts": 128,
            "top_k_experts": 8,
            "moe_intermediate_size": 704,
        },
    ),
    "Qwen3.5 9B": nested(
        "qwen3_5",
        {
            **COMMON,
            "model_type": "qwen3_5_text",
            "hidden_size": 4096,
            "intermediate_size": 12288,
            "num_hidden_layers": 32,
            "num_attention_heads": 16,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "rms_norm_eps": 1e-6,
            "vocab_size": 248320,
            "max_position_embeddings": 262144,
            "full_attention_interval": 4,
            "linear_num_value_heads": 32,
            "linear_num_key_heads": 16,
            "linear_key_head_dim": 128,
            "linear_value_head_dim": 128,
            "linear_conv_kernel_dim": 4,
            "tie_word_embeddings": False,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000000.0,
                "partial_rotary_factor": 0.25,
            },
        },
    ),
}
# Not among the measured models, but other kinds of layers: separate experts, and biases.
QWEN3_30B = {
    **COMMON,
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "norm_topk_prob": True,
    "rms_norm_eps": 1e-6,
    "vocab_size": 151936,
    "rope_theta": 1000000.0,
    "max_position_embeddings": 40960,
    "tie_word_embeddings": False,
}
QWEN2_7B = {
    **COMMON,
    "model_type": "qwen2",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "rms_norm_eps": 1e-6,
    "vocab_size": 152064,
    "rope_theta": 1000000.0,
    "max_position_embeddings": 32768,
    "tie_word_embeddings": False,
}


def changed(config: dict, **text) -> dict:
    """With other values, in the text part where there is one."""
    config = copy.deepcopy(config)
    (config.get("text_config") or config).update(text)
    if "text_config" in config and "vocab_size" in text:
        config["vocab_size"] = text["vocab_size"]
    return config


def build(config: dict) -> nn.Module:
    """mlx-lm's model, with parameters that are not computed yet."""
    known = json.loads(json.dumps(config))  # mlx-lm writes into it
    known["model_type"] = known["model_type"].replace("_unified", "")
    model_class, args_class = utils._get_classes(known)
    return model_class(args_class.from_dict(known))


def packable_shapes(config: dict) -> dict[tuple, str]:
    """{shape: the kind of layer} of all distinct weights that are packed."""
    shapes = {}
    for module in build(config).modules():
        if type(module) in (nn.Linear, nn.Embedding, SwitchLinear):
            kind = "embedding" if type(module) is nn.Embedding else "linear"
            shapes.setdefault(tuple(module.weight.shape), kind)
    return shapes


def parameter_count(model: nn.Module) -> int:
    return sum(array.size for _, array in tree_flatten(model.parameters()))
