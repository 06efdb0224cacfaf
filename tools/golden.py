"""What Hugging Face computes with a small random model, for src/model/golden_test.cpp. Needs PyTorch and transformers.

usage: golden.py CONFIG.json OUT_DIR

CONFIG.json is a config.json of the architecture ("model_type" and the numbers), small: a width of 64, a few layers, a
vocabulary of 320. OUT_DIR/hf becomes a Hugging Face folder, to be converted to OUT_DIR/model.gguf with F16 weights;
golden.json and logits*.f32 are the answers. docs/adding-a-model.md says what they mean."""
import json
import os
import sys

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM

LENGTHS = (1, 7, 33, 96)  # of the prompts
GREEDY = 24               # tokens that follow each


def make(config):
    """With weights that a half can hold, so that a file with F16 matrices has the very same ones."""
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() >= 2:  # each sum is about as large as its inputs, and so are the logits
                weight.normal_(std=weight[0].numel() ** -0.5)
            elif not name.endswith(("A_log", "dt_bias", ".D")):
                weight.add_(torch.randn_like(weight) * 0.1)
            weight.copy_(weight.half().float())
    model.tie_weights()
    return model


@torch.no_grad()
def logits_of(model, tokens):
    # From the beginning each time: no cache that could be wrong in the same way as ours.
    return model(torch.tensor([tokens]), use_cache=False).logits[0].float()


def case(model, tokens, path):
    logits = logits_of(model, tokens)
    logits[-1].numpy().astype("<f4").tofile(path)
    probabilities = torch.log_softmax(logits.double(), -1)
    greedy, margins = [], []
    for _ in range(GREEDY):
        best = logits_of(model, tokens + greedy)[-1].topk(2)
        greedy.append(best.indices[0].item())
        margins.append(round((best.values[0] - best.values[1]).item(), 5))
    return dict(tokens=tokens, last_logits=os.path.basename(path),
                next_logprob=[round(probabilities[i, token].item(), 6) for i, token in enumerate(tokens[1:])],
                argmax=logits.argmax(-1).tolist(), greedy=greedy, greedy_margin=margins,
                logit_std=round(logits[-1].std().item(), 4))


def main():
    path, out = sys.argv[1:]
    with open(path) as file:
        numbers = json.load(file)
    config = AutoConfig.for_model(**numbers)
    model = make(config)
    os.makedirs(out, exist_ok=True)
    model.save_pretrained(os.path.join(out, "hf"))
    random = np.random.default_rng(2)
    cases = [case(model, random.integers(3, config.vocab_size, length).tolist(), os.path.join(out, f"logits{i}.f32"))
             for i, length in enumerate(LENGTHS)]
    with open(os.path.join(out, "golden.json"), "w") as file:
        json.dump(dict(name=os.path.basename(os.path.abspath(out)), architecture=type(model).__name__, cases=cases), file)


if __name__ == "__main__":
    main()
