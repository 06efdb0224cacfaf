"""The way back: a Hugging Face folder of a demo model's GGUF file, with its weights as floats. No packages needed.

usage: to_hf.py MODEL.gguf HF_DIR

For scoring a file through Hugging Face (eval.py), and for the test of convert.py, which must make the file again. Written
apart from convert.py, so that a slip in one of the two shows."""
import json
import math
import os
import sys
from array import array

import gguf_file as gguf
import tensor_file

CHAT_TOKENS = {"bos_token": "bos", "eos_token": "eos", "pad_token": "padding"}


def values_of(tensor):
    return gguf.dequantize(tensor.data) if tensor.type == gguf.Q8_0 else gguf.to_floats(tensor.data)


def halves(values, rows, heads):
    """Row 2i of a head goes to place i, row 2i + 1 to place i + n/2."""
    cols = len(values) // rows
    head = rows // heads
    result = array("f", bytes(4 * len(values)))
    for row in range(rows):
        at, i = row // head * head, row % head
        to = at + i // 2 + (head // 2 if i % 2 else 0)
        result[to * cols:(to + 1) * cols] = values[row * cols:(row + 1) * cols]
    return result


def mamba_tensors(layer, prefix):
    a, conv = layer["ssm_a"], layer["ssm_conv1d.weight"]
    kernel, channels = conv.shape
    for ours, theirs in (("ssm_in.weight", "in_proj.weight"), ("ssm_out.weight", "out_proj.weight")):
        yield prefix + theirs, layer[ours].shape[::-1], values_of(layer[ours])
    for ours, theirs in (("ssm_conv1d.bias", "conv1d.bias"), ("ssm_dt.bias", "dt_bias"), ("ssm_d", "D"),
                         ("ssm_norm.weight", "norm.weight")):
        values = values_of(layer[ours])
        yield prefix + theirs, [len(values)], values
    yield prefix + "conv1d.weight", [channels, 1, kernel], values_of(conv)
    yield prefix + "A_log", [a.shape[-1]], array("f", [math.log(-x) for x in values_of(a)])


def attention_tensors(layer, prefix, heads, kv_heads):
    for ours, theirs, count in (("attn_q", "q_proj", heads), ("attn_k", "k_proj", kv_heads)):
        cols, rows = layer[ours + ".weight"].shape
        yield prefix + theirs + ".weight", [rows, cols], halves(values_of(layer[ours + ".weight"]), rows, count)
    for ours, theirs in (("attn_v", "v_proj"), ("attn_output", "o_proj")):
        yield prefix + theirs + ".weight", layer[ours + ".weight"].shape[::-1], values_of(layer[ours + ".weight"])


def plain(tensor, name):
    return name, tensor.shape[::-1], values_of(tensor)


def hf_tensors(architecture, number, kv_heads, tensors):
    layers = [{} for _ in range(number("block_count"))]
    for name, tensor in tensors.items():
        if name.startswith("blk."):
            _, i, rest = name.split(".", 2)
            layers[int(i)][rest] = tensor
    if architecture == "mamba2":
        yield plain(tensors["token_embd.weight"], "backbone.embeddings.weight")
        yield plain(tensors["output_norm.weight"], "backbone.norm_f.weight")
        for i, layer in enumerate(layers):
            yield plain(layer["attn_norm.weight"], f"backbone.layers.{i}.norm.weight")
            yield from mamba_tensors(layer, f"backbone.layers.{i}.mixer.")
        return
    yield plain(tensors["token_embd.weight"], "model.embed_tokens.weight")
    yield plain(tensors["output_norm.weight"], "model.norm.weight")
    for i, layer in enumerate(layers):
        prefix = f"model.layers.{i}."
        yield plain(layer["attn_norm.weight"], prefix + "input_layernorm.weight")
        yield plain(layer["ffn_norm.weight"], prefix + "post_attention_layernorm.weight")
        if kv_heads[i] > 0:
            yield from attention_tensors(layer, prefix + "self_attn.", number("attention.head_count"), kv_heads[i])
        else:
            yield from mamba_tensors(layer, prefix + "mamba.")
        gate, up, down = (layer[f"ffn_{part}.weight"] for part in ("gate", "up", "down"))
        if architecture == "llama":
            yield plain(gate, prefix + "mlp.gate_proj.weight")
            yield plain(up, prefix + "mlp.up_proj.weight")
            yield plain(down, prefix + "mlp.down_proj.weight")
        else:
            cols, rows = gate.shape
            yield prefix + "shared_mlp.input_linear.weight", [2 * rows, cols], values_of(gate) + values_of(up)
            yield plain(down, prefix + "shared_mlp.output_linear.weight")


def hf_config(architecture, number, kv_heads, vocabulary):
    def decimal(name):  # 1e-05, not the double next to the float
        return float(f"{number(name):.7g}")

    config = {"vocab_size": vocabulary, "hidden_size": number("embedding_length"), "num_hidden_layers": number("block_count"),
              "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 0, "tie_word_embeddings": True, "torch_dtype": "float32"}
    if architecture == "mamba2":
        heads, inner = number("ssm.time_step_rank"), number("ssm.inner_size")
        return config | {
            "model_type": "mamba2", "architectures": ["Mamba2ForCausalLM"], "num_heads": heads, "head_dim": inner // heads,
            "expand": inner // number("embedding_length"), "state_size": number("ssm.state_size"),
            "n_groups": number("ssm.group_count"), "conv_kernel": number("ssm.conv_kernel"), "use_conv_bias": True,
            "use_bias": False, "rms_norm": True, "chunk_size": 64,
            "layer_norm_epsilon": decimal("attention.layer_norm_rms_epsilon")}
    config |= {
        "num_attention_heads": number("attention.head_count"), "num_key_value_heads": max(kv_heads),
        "max_position_embeddings": number("context_length"), "rope_theta": decimal("rope.freq_base"),
        "rms_norm_eps": decimal("attention.layer_norm_rms_epsilon"), "intermediate_size": number("feed_forward_length")}
    if architecture == "llama":
        return config | {"model_type": "llama", "architectures": ["LlamaForCausalLM"],
                         "head_dim": number("attention.key_length")}
    heads, inner = number("ssm.time_step_rank"), number("ssm.inner_size")
    return config | {
        "model_type": "granitemoehybrid", "architectures": ["GraniteMoeHybridForCausalLM"], "position_embedding_type": "nope",
        "layer_types": ["attention" if count else "mamba" for count in kv_heads],
        "num_local_experts": 0, "num_experts_per_tok": 0, "shared_intermediate_size": number("feed_forward_length"),
        "attention_multiplier": decimal("attention.scale"), "embedding_multiplier": decimal("embedding_scale"),
        "residual_multiplier": decimal("residual_scale"), "logits_scaling": decimal("logit_scale"),
        "mamba_n_heads": heads, "mamba_d_head": inner // heads, "mamba_expand": inner // number("embedding_length"),
        "mamba_d_state": number("ssm.state_size"), "mamba_n_groups": number("ssm.group_count"),
        "mamba_d_conv": number("ssm.conv_kernel"), "mamba_chunk_size": 64, "mamba_conv_bias": True, "mamba_proj_bias": False}


def hf_tokenizer(metadata):
    """tokenizer.json and tokenizer_config.json. The words behind the last real one only fill up the embedding."""
    tokens, types = metadata["tokenizer.ggml.tokens"].values, metadata["tokenizer.ggml.token_type"].values
    regex = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|"
             r"\s+")
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    rules = {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None,
        "added_tokens": [{"id": i, "content": word, "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True} for i, word in enumerate(tokens) if types[i] == 3],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}, byte_level]},
        "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {word: i for i, word in enumerate(tokens) if types[i] != 5},
                  "merges": [merge.split(" ") for merge in metadata["tokenizer.ggml.merges"].values]},
    }
    config = {theirs: tokens[metadata[f"tokenizer.ggml.{ours}_token_id"]] for theirs, ours in CHAT_TOKENS.items()}
    config |= {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": metadata["tokenizer.chat_template"],
               "add_bos_token": metadata["tokenizer.ggml.add_bos_token"], "model_max_length": 2048}
    return rules, config


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    path, folder = sys.argv[1:]
    metadata, tensors = gguf.read(path)
    architecture = metadata["general.architecture"]

    def number(name):
        return metadata[f"{architecture}.{name}"]

    layers = number("block_count")
    kv_heads = metadata.get(architecture + ".attention.head_count_kv", 0)
    kv_heads = kv_heads.values if isinstance(kv_heads, gguf.Array) else [kv_heads] * layers
    vocabulary = tensors["token_embd.weight"].shape[1]
    os.makedirs(folder, exist_ok=True)
    rules, tokens = hf_tokenizer(metadata)
    files = {"config.json": hf_config(architecture, number, kv_heads, vocabulary), "tokenizer.json": rules,
             "tokenizer_config.json": tokens}
    for name, content in files.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            json.dump(content, file, indent=1, ensure_ascii=False)
    hf = {name: (shape, values) for name, shape, values in hf_tensors(architecture, number, kv_heads, tensors)}
    tensor_file.write(os.path.join(folder, "model.safetensors"), hf)


if __name__ == "__main__":
    main()
