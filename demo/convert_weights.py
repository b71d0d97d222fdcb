"""Turns a llama GGUF file into BF16 tensors with Hugging Face's names and row order."""

import re
from collections.abc import Iterator

import gguf
import numpy as np
from round_bf16 import round_to_bf16

TOP_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def huggingface_name(name: str) -> str:
    if name in TOP_NAMES:
        return TOP_NAMES[name]
    match = re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", name)
    if match is None or match[2] not in LAYER_NAMES:
        raise SystemExit(f"the GGUF file holds a tensor of unknown purpose: {name}")
    return f"model.layers.{match[1]}.{LAYER_NAMES[match[2]]}.weight"


def undo_rotary_permutation(rows: np.ndarray, nheads: int) -> np.ndarray:
    """GGUF keeps the two numbers that rotary embedding turns together in neighbouring rows;
    Hugging Face keeps them half a head apart. rows: [nheads * head size, K]."""
    pairs = rows.reshape(nheads, rows.shape[0] // nheads // 2, 2, rows.shape[1])
    return pairs.swapaxes(1, 2).reshape(rows.shape)


def convert_tensors(
    reader: gguf.GGUFReader, nheads: int, nheads_kv: int
) -> Iterator[tuple[str, np.ndarray]]:
    """Yields (name, BF16 bit patterns) of every tensor."""
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        if tensor.name.endswith("attn_q.weight"):
            values = undo_rotary_permutation(values, nheads)
        elif tensor.name.endswith("attn_k.weight"):
            values = undo_rotary_permutation(values, nheads_kv)
        yield huggingface_name(tensor.name), round_to_bf16(values)
