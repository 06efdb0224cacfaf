"""Trains one demo model and writes it as a Hugging Face folder. Needs a GPU.

usage: train.py llama|mamba2|hybrid HF_DIR TOKENS.bin TOKENIZER_DIR SECONDS

The learning rate follows the clock: it has come down to its end when SECONDS are over."""
import math
import os
import shutil
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from transformers import (GraniteMoeHybridConfig, GraniteMoeHybridForCausalLM, LlamaConfig, LlamaForCausalLM, Mamba2Config,
                          Mamba2ForCausalLM)

import net as n

BATCH, RATE, WARM_UP = 24, 3e-3, 200
DEVICE = "cuda"


def batches(data):
    random = np.random.default_rng(3)
    while True:
        begins = random.integers(0, len(data) - n.CONTEXT - 1, BATCH)
        rows = np.stack([data[i:i + n.CONTEXT + 1] for i in begins]).astype(np.int64)
        x = torch.from_numpy(rows).pin_memory().to(DEVICE, non_blocking=True)
        yield x[:, :-1], x[:, 1:]


def train(model, net, data, seconds):
    cos, sin = (x.bfloat16() for x in n.angles(n.CONTEXT, DEVICE))
    parameters = list(net.named_parameters())
    matrices = [p for name, p in parameters if p.dim() >= 2 and "conv1d" not in name]
    rest = [p for name, p in parameters if p.dim() < 2 or "conv1d" in name]
    optimizer = torch.optim.AdamW([dict(params=matrices, weight_decay=.05), dict(params=rest, weight_decay=0.)], lr=RATE,
                                  betas=(.9, .95), fused=True)

    @torch.compile
    def loss_of(x, y):
        return F.cross_entropy(net(x, cos, sin).float().view(-1, n.VOCABULARY), y.reshape(-1))

    start, seen = None, 0
    for step, (x, y) in enumerate(batches(data)):
        done = 0 if start is None else (time.time() - start) / seconds
        if done >= 1:
            break
        rate = RATE * min(1, (step + 1) / WARM_UP) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * done)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        with torch.autocast("cuda", torch.bfloat16):
            loss = loss_of(x, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seen += x.numel()
        if start is None:  # the first step compiles, which does not count
            torch.cuda.synchronize()
            start = time.time()
        if (step + 1) % 200 == 0:
            print(f"{model} step {step + 1}, {seen / 1e6:.0f} M tokens, loss {loss.item():.4f}, "
                  f"{seen / (time.time() - start + 1e-9) / 1e3:.0f} k tokens/s", flush=True)
    print(f"{model} done: {step} steps, {seen / 1e6:.0f} M tokens, loss {loss.item():.4f}", flush=True)


def hugging_face(model):
    """Its model of our shape, with weights to be loaded."""
    embedding, residual, logits = n.SCALES[model]
    common = dict(vocab_size=n.VOCABULARY, hidden_size=n.WIDTH, num_hidden_layers=len(n.KINDS[model]), bos_token_id=0,
                  eos_token_id=2, pad_token_id=0, tie_word_embeddings=True)
    attention = dict(intermediate_size=n.FEED_FORWARD, num_attention_heads=n.HEADS, num_key_value_heads=n.KV_HEADS,
                     rms_norm_eps=n.EPSILON, max_position_embeddings=n.CONTEXT)
    if model == "llama":
        return LlamaForCausalLM(LlamaConfig(**common, **attention, head_dim=n.HEAD, rope_theta=10000.0))
    if model == "mamba2":
        return Mamba2ForCausalLM(Mamba2Config(
            **common, num_heads=n.SSM_HEADS, head_dim=n.SSM_HEAD, state_size=n.STATE, expand=n.INNER // n.WIDTH, n_groups=1,
            conv_kernel=n.KERNEL, layer_norm_epsilon=n.EPSILON, use_conv_bias=True, use_bias=False, rms_norm=True,
            chunk_size=64))
    return GraniteMoeHybridForCausalLM(GraniteMoeHybridConfig(
        **common, **attention, position_embedding_type="nope", embedding_multiplier=embedding, residual_multiplier=residual,
        logits_scaling=logits, attention_multiplier=n.ATTENTION_SCALE, num_local_experts=0, num_experts_per_tok=0,
        shared_intermediate_size=n.FEED_FORWARD,
        layer_types=["attention" if kind == "h-attention" else "mamba" for kind in n.KINDS[model]],
        mamba_n_heads=n.SSM_HEADS, mamba_d_head=n.SSM_HEAD, mamba_d_state=n.STATE, mamba_n_groups=1, mamba_d_conv=n.KERNEL,
        mamba_expand=n.INNER // n.WIDTH, mamba_chunk_size=64, mamba_conv_bias=True, mamba_proj_bias=False))


def export(model, net):
    base = "backbone" if model == "mamba2" else "model"
    special = {"emb.weight": "embeddings.weight" if model == "mamba2" else "embed_tokens.weight",
               "norm.weight": "norm_f.weight" if model == "mamba2" else "norm.weight"}
    weights = {f"{base}.{special.get(name, name)}": value.detach().float().cpu().contiguous()
               for name, value in net.state_dict().items()}
    result = hugging_face(model)
    missing, unexpected = result.load_state_dict(weights, strict=False)
    if unexpected or set(missing) - {"lm_head.weight"}:  # that one is the embedding
        sys.exit(f"{model}: Hugging Face misses {missing} and does not know {unexpected}")
    result.tie_weights()
    return result.eval()


@torch.no_grad()
def compare(model, theirs, net, data):
    ids = torch.from_numpy(data[:256].astype(np.int64))[None]
    a = theirs(ids).logits.float()
    b = net(ids.to(DEVICE), *n.angles(256, DEVICE)).float().cpu()
    print(f"{model}: logits of Hugging Face and ours differ by at most {(a - b).abs().max().item():.2g}, agree on "
          f"{(a.argmax(-1) == b.argmax(-1)).float().mean().item():.3f} of the next tokens, "
          f"loss {F.cross_entropy(a[0, :-1], ids[0, 1:]).item():.4f}", flush=True)


def main():
    model, out, tokens, tokenizer, seconds = *sys.argv[1:5], float(sys.argv[5])
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = True
    data = np.memmap(tokens, dtype=np.uint16, mode="r")
    if data.max() >= n.VOCABULARY:
        sys.exit(f"{tokens}: token {data.max()}, but the model has {n.VOCABULARY}")
    net = n.Net(model).to(DEVICE)
    print(f"{model}: {sum(p.numel() for p in net.parameters()) / 1e6:.2f} M parameters", flush=True)
    train(model, net, data, seconds)
    result = export(model, net)
    torch.backends.cuda.matmul.allow_tf32 = False
    compare(model, result, net, data)
    result.save_pretrained(out)
    for name in os.listdir(tokenizer):
        shutil.copy(os.path.join(tokenizer, name), out)


if __name__ == "__main__":
    main()
