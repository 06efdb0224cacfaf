"""A demo model from the Hugging Face folder that train.py writes to the GGUF file that Quire runs. No packages needed.

usage: convert.py HF_DIR MODEL.gguf [--name NAME] [--type q8_0|f32]

Matrices become Q8_0, vectors and the convolution stay F32. Knows the three kinds of model that train.py makes (llama, mamba2,
granitemoehybrid without experts) and our tokenizer, and refuses what it would have to guess."""
import argparse
import json
import math
import os
import re
import sys
from array import array

import gguf_file as gguf
import tensor_file

# The split of text into words that prepare.py trains the tokenizer with is the one that GGUF calls "qwen2".
PRE_TOKENIZER = "qwen2"
REGEX = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
         r"\s+(?!\S)|\s+")
NORMAL, CONTROL, UNUSED = 1, 3, 5  # types of tokens

ATTENTION = {
    "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
    "shared_mlp.output_linear.weight": "ffn_down.weight",
}
MAMBA = {
    "in_proj.weight": "ssm_in.weight",
    "out_proj.weight": "ssm_out.weight",
    "conv1d.weight": "ssm_conv1d.weight",
    "conv1d.bias": "ssm_conv1d.bias",
    "dt_bias": "ssm_dt.bias",
    "A_log": "ssm_a",
    "D": "ssm_d",
    "norm.weight": "ssm_norm.weight",
}
NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "backbone.embeddings.weight": "token_embd.weight",
    "backbone.norm_f.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
LAYER = {
    **ATTENTION,
    "norm.weight": "attn_norm.weight",
    **{"mixer." + theirs: ours for theirs, ours in MAMBA.items()},
    **{"mamba." + theirs: ours for theirs, ours in MAMBA.items()},
}


class Refused(Exception):
    pass


def required(config, key):
    if config.get(key) is None:
        raise Refused(f"config.json has no '{key}'")
    return config[key]


def rope_base(config):
    """Where transformers 4 and 5 keep it. A scaled rotation is none that train.py makes."""
    if config.get("rope_scaling"):
        raise Refused("config.json: 'rope_scaling' is set")
    parameters = config.get("rope_parameters") or {}
    if parameters.get("rope_type", "default") != "default":
        raise Refused(f"config.json: a rotation of type '{parameters['rope_type']}'")
    return parameters.get("rope_theta", config.get("rope_theta", 10000.0))


def is_attention(layer_type):
    kinds = {"attention": True, "full_attention": True, "mamba": False, "linear_attention": False}
    if layer_type not in kinds:
        raise Refused(f"config.json: a layer of type '{layer_type}'")
    return kinds[layer_type]


def attention_numbers(config, name):
    heads = required(config, "num_attention_heads")
    head = config.get("head_dim") or required(config, "hidden_size") // heads
    return [
        (name + ".block_count", gguf.U32, required(config, "num_hidden_layers")),
        (name + ".context_length", gguf.U32, required(config, "max_position_embeddings")),
        (name + ".embedding_length", gguf.U32, required(config, "hidden_size")),
        (name + ".attention.head_count", gguf.U32, heads),
        (name + ".rope.freq_base", gguf.FLOAT, rope_base(config)),
        (name + ".rope.dimension_count", gguf.U32, head),
        (name + ".attention.layer_norm_rms_epsilon", gguf.FLOAT, required(config, "rms_norm_eps")),
        (name + ".vocab_size", gguf.U32, required(config, "vocab_size")),
    ]


def mamba_numbers(name, heads, head, state, groups, kernel):
    return [
        (name + ".ssm.conv_kernel", gguf.U32, kernel),
        (name + ".ssm.inner_size", gguf.U32, heads * head),
        (name + ".ssm.state_size", gguf.U32, state),
        (name + ".ssm.time_step_rank", gguf.U32, heads),
        (name + ".ssm.group_count", gguf.U32, groups),
    ]


def llama_numbers(config):
    head = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    return attention_numbers(config, "llama") + [
        ("llama.feed_forward_length", gguf.U32, required(config, "intermediate_size")),
        ("llama.attention.head_count_kv", gguf.U32, required(config, "num_key_value_heads")),
        ("llama.attention.key_length", gguf.U32, head),
        ("llama.attention.value_length", gguf.U32, head),
    ]


def mamba2_numbers(config):
    return [
        ("mamba2.block_count", gguf.U32, required(config, "num_hidden_layers")),
        # A recurrent model has no length of its own; this is what files of this kind say instead.
        ("mamba2.context_length", gguf.U32, 1 << 20),
        ("mamba2.embedding_length", gguf.U32, required(config, "hidden_size")),
        ("mamba2.feed_forward_length", gguf.U32, 0),
        ("mamba2.attention.head_count", gguf.U32, 0),
        ("mamba2.attention.layer_norm_rms_epsilon", gguf.FLOAT, required(config, "layer_norm_epsilon")),
    ] + mamba_numbers("mamba2", required(config, "num_heads"), required(config, "head_dim"), required(config, "state_size"),
                      required(config, "n_groups"), required(config, "conv_kernel"))


def hybrid_numbers(config):
    if config.get("num_local_experts"):
        raise Refused("config.json: 'num_local_experts' is not 0")
    kv_heads = required(config, "num_key_value_heads")
    width = required(config, "shared_intermediate_size")
    layers = [kv_heads if is_attention(kind) else 0 for kind in required(config, "layer_types")]
    name = "granitehybrid"
    return attention_numbers(config, name) + [
        (name + ".feed_forward_length", gguf.U32, width),
        (name + ".expert_shared_feed_forward_length", gguf.U32, width),
        (name + ".expert_count", gguf.U32, 0),
        (name + ".expert_used_count", gguf.U32, 0),
        (name + ".attention.head_count_kv", gguf.ARRAY, gguf.Array(gguf.I32, layers)),
        (name + ".attention.scale", gguf.FLOAT, required(config, "attention_multiplier")),
        (name + ".embedding_scale", gguf.FLOAT, required(config, "embedding_multiplier")),
        (name + ".residual_scale", gguf.FLOAT, required(config, "residual_multiplier")),
        (name + ".logit_scale", gguf.FLOAT, required(config, "logits_scaling")),
        # For this architecture the key says whether positions are rotated at all.
        (name + ".rope.scaling.finetuned", gguf.BOOL, config.get("position_embedding_type") == "rope"),
    ] + mamba_numbers(name, required(config, "mamba_n_heads"), required(config, "mamba_d_head"),
                      required(config, "mamba_d_state"), required(config, "mamba_n_groups"), required(config, "mamba_d_conv"))


# Hugging Face's "model_type": GGUF's name and the numbers.
KINDS = {
    "llama": ("llama", llama_numbers),
    "mamba2": ("mamba2", mamba2_numbers),
    "granitemoehybrid": ("granitehybrid", hybrid_numbers),
}


def neighbours(shape, values, heads):
    """Hugging Face rotates element i of a head with element i + n/2, GGUF's files of these kinds with the one beside it: rows
    0, n/2, 1, n/2 + 1, … of each head."""
    rows, cols = shape
    head = rows // heads
    result = array("f")
    for begin in range(0, rows, head):
        for i in range(head):
            row = begin + i // 2 + i % 2 * (head // 2)
            result.extend(values[row * cols:(row + 1) * cols])
    return result


def tensors_of(config, theirs):
    """{our name: (shape with the row's length last, floats)}"""
    ours = {}
    for name, (shape, values) in theirs.items():
        if name == "lm_head.weight" and config.get("tie_word_embeddings"):
            continue
        layer = re.fullmatch(r"(?:model|backbone)\.layers\.(\d+)\.(.+)", name)
        prefix, rest = (f"blk.{layer[1]}.", layer[2]) if layer else ("", name)
        if rest == "shared_mlp.input_linear.weight":  # the gate's rows, then the others
            rows, cols = shape
            half = rows // 2 * cols
            ours[prefix + "ffn_gate.weight"] = [rows // 2, cols], values[:half]
            ours[prefix + "ffn_up.weight"] = [rows // 2, cols], values[half:]
            continue
        to = (LAYER if layer else NAMES).get(rest)
        if to is None:
            raise Refused(f"tensor '{name}' is none that a demo model has")
        if to == "attn_q.weight":
            values = neighbours(shape, values, config["num_attention_heads"])
        elif to == "attn_k.weight":
            values = neighbours(shape, values, config["num_key_value_heads"])
        elif to == "ssm_a":
            values = array("f", [-math.exp(x) for x in values])
        if to in ("ssm_a", "ssm_d"):
            shape = [shape[0], 1]
        elif to == "ssm_conv1d.weight":
            shape = [shape[0], shape[2]]
        elif to == "ssm_norm.weight":
            groups = config.get("n_groups", config.get("mamba_n_groups", 1))
            shape = [shape[0]] if groups == 1 else [groups, shape[0] // groups]
        ours[prefix + to] = shape, values
    return ours


def packed(name, shape, values, kind):
    elements = math.prod(shape)
    if elements != len(values):
        raise Refused(f"tensor '{name}' has {len(values)} values for a shape of {shape}")
    matrix = len(shape) == 2 and not name.endswith(("ssm_conv1d.weight", "ssm_a", "ssm_d", "ssm_norm.weight"))
    if kind == "q8_0" and matrix and shape[-1] % gguf.BLOCK == 0:
        return gguf.Tensor(gguf.Q8_0, shape[::-1], gguf.quantize(values))
    return gguf.Tensor(gguf.F32, shape[::-1], gguf.to_bytes(values))


def tokenizer(folder, size):
    with open(os.path.join(folder, "tokenizer.json"), encoding="utf-8") as file:
        rules = json.load(file)
    with open(os.path.join(folder, "tokenizer_config.json"), encoding="utf-8") as file:
        config = json.load(file)
    model = rules["model"]
    splits = [part["pattern"]["Regex"] for part in rules["pre_tokenizer"]["pretokenizers"] if part["type"] == "Split"]
    if model["type"] != "BPE" or splits != [REGEX]:
        raise Refused("tokenizer.json is not of the kind that prepare.py makes")
    special = {token["content"]: token["id"] for token in rules["added_tokens"]}
    ids = {**model["vocab"], **special}
    words = {i: word for word, i in ids.items()}
    if len(words) != len(ids) or max(words) >= size:
        raise Refused(f"tokenizer.json has {len(ids)} tokens, the model {size}")
    # The embedding may have more rows than there are tokens; each needs a name of its own.
    tokens = [words.get(i, f"[PAD{i}]") for i in range(size)]
    types = [UNUSED if i not in words else CONTROL if words[i] in special else NORMAL for i in range(size)]
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    result = [
        ("tokenizer.ggml.model", gguf.STRING, "gpt2"),
        ("tokenizer.ggml.pre", gguf.STRING, PRE_TOKENIZER),
        ("tokenizer.ggml.tokens", gguf.ARRAY, gguf.Array(gguf.STRING, tokens)),
        ("tokenizer.ggml.token_type", gguf.ARRAY, gguf.Array(gguf.I32, types)),
        ("tokenizer.ggml.merges", gguf.ARRAY, gguf.Array(gguf.STRING, merges)),
    ]
    for key, token in (("bos", "bos_token"), ("eos", "eos_token"), ("padding", "pad_token")):
        result.append((f"tokenizer.ggml.{key}_token_id", gguf.U32, special[config[token]]))
    result.append(("tokenizer.ggml.add_bos_token", gguf.BOOL, config["add_bos_token"]))
    result.append(("tokenizer.chat_template", gguf.STRING, config["chat_template"]))
    return result


def in_order(name):
    """What is not of a layer first, then layer by layer, by name."""
    layer = re.match(r"blk\.(\d+)\.", name)
    return (int(layer[1]) if layer else -1, name)


def convert(folder, path, name, kind):
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    model_type = config.get("model_type")
    if model_type not in KINDS:
        raise Refused(f"config.json: a model of type '{model_type}' ({', '.join(KINDS)} can be converted)")
    architecture, numbers = KINDS[model_type]
    floats = tensors_of(config, tensor_file.read(os.path.join(folder, "model.safetensors")))
    parameters = sum(len(values) for _, values in floats.values())
    metadata = [
        ("general.architecture", gguf.STRING, architecture),
        ("general.type", gguf.STRING, "model"),
        ("general.name", gguf.STRING, name),
        ("general.size_label", gguf.STRING, f"{parameters / 1e6:.1f}M"),
    ]
    metadata += numbers(config) + tokenizer(folder, required(config, "vocab_size"))
    metadata.append(("general.quantization_version", gguf.U32, 2))
    metadata.append(("general.file_type", gguf.U32, {"f32": 0, "q8_0": 7}[kind]))
    tensors = {tensor: packed(tensor, *floats[tensor], kind) for tensor in sorted(floats, key=in_order)}
    gguf.write(path, metadata, tensors)


def main():
    parser = argparse.ArgumentParser(description="Makes a GGUF file of a demo model's Hugging Face folder.")
    parser.add_argument("folder")
    parser.add_argument("path")
    parser.add_argument("--name", help="what the file calls the model (default: the folder's name)")
    parser.add_argument("--type", choices=["q8_0", "f32"], default="q8_0")
    args = parser.parse_args()
    try:
        convert(args.folder, args.path, args.name or os.path.basename(os.path.abspath(args.folder)), args.type)
    except (Refused, OSError, KeyError, ValueError) as error:
        sys.exit(f"{args.folder}: {error}")


if __name__ == "__main__":
    main()
