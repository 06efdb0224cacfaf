"""Greedy accuracy of a demo model on its tasks, through Hugging Face.

usage: eval.py HF_DIR"""
import os
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import corpus
import questions

folder = sys.argv[1]
device = "cuda" if torch.cuda.is_available() else "cpu"
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder).eval().float().to(device)


def ask(prompt, count=40):
    ids = tokenizer(prompt, return_tensors="pt").input_ids.to(device)
    out = model.generate(ids, max_new_tokens=count, do_sample=False, eos_token_id=2, pad_token_id=0)
    return tokenizer.decode(out[0, ids.shape[1]:], skip_special_tokens=True)


for kind, pairs in questions.make():
    right = sum(ask(prompt).strip() == answer for prompt, answer in pairs)
    print(os.path.basename(folder), kind, f"{right}/{len(pairs)}", flush=True)
print(ask("Once upon a time there was", 200))
print(ask(corpus.turn("user", "Tell me a story about Lily.") + questions.ANSWER, 200))
