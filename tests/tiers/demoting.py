#!/usr/bin/env python3
"""Decode beside a pool that evicts: clients stream long answers while new prompts push old ones out. The same requests
go to a server without tiers, to one that demotes what it evicts, and to one that writes behind, in turn, several
times; the best of each counts. Answers must be the same, and with tiers content must have left the pool.

    tests/tiers/demoting.py                       the demo model
    tests/tiers/demoting.py --long                llama-1.1b in Q8_0, made by `quire synth`
    tests/tiers/demoting.py --model FILE --memory 400M --tier "--host-cache 1G"    on a GPU: its host tier
"""
import os
import shlex
import subprocess
import time

from lib import DEMO, Server, arguments, ask, in_parallel, table, temporary_folder, tokens_of, verdict

OPTIONS = arguments(__doc__, tools=(), model=("", "instead of the demo model"), memory=("", "of the pool"),
                    tier=("", "options of the server that demotes (default: a disk, written at eviction and behind)"),
                    server=("", "more options for every server"), streams=(4, "answers at once"),
                    tokens=(0, "of each answer (default: 400; --long: 200)"), churn=(256, "tokens of each new prompt"),
                    tokens_per_prompt=(8, "tokens of an answer for each new prompt"),
                    repeat=(3, "rounds"), most_slower=(0.0, "fails above this part, for example 0.03 (default: never)"))
FOLDER = temporary_folder(OPTIONS.folder)
TOKENS = OPTIONS.tokens or (200 if OPTIONS.long else 400)
PROMPTS = TOKENS // OPTIONS.tokens_per_prompt
PROBLEMS = []


def model_file():
    if OPTIONS.model or not OPTIONS.long:
        return OPTIONS.model or DEMO
    path = os.path.join(FOLDER, "llama.gguf")
    subprocess.run([OPTIONS.binary, "synth", "--shape", "llama-1.1b", "--type", "Q8_0", "-o", path], check=True,
                   stdout=subprocess.DEVNULL)
    return path


def run(model, tiers, number):
    """The same work for every server: answers, and beside them new prompts, one after the other. Returns the seconds
    that all of it took, the texts, and the bytes that went to the tiers."""
    memory = OPTIONS.memory or ("120M" if OPTIONS.long else "12M")
    server = Server(OPTIONS, os.path.join(FOLDER, "log"), model, tiers,
                    ("--memory", memory, "--ctx", str(max(64 + TOKENS, OPTIONS.churn + 4) + 16), *shlex.split(OPTIONS.server)))
    ask(server.port, {"prompt": tokens_of(99, OPTIONS.churn), "max_tokens": 4})

    def stream(i):
        return ask(server.port, {"prompt": tokens_of(i, 64), "max_tokens": TOKENS, "ignore_eos": True,
                                 "temperature": 1, "seed": i}).text

    def churn():
        return [ask(server.port, {"prompt": tokens_of(1000 + i, OPTIONS.churn), "max_tokens": 1}).text
                for i in range(PROMPTS)]

    begun = time.monotonic()
    texts = in_parallel([churn, *(lambda i=i: stream(i) for i in range(OPTIONS.streams))], OPTIONS.streams + 1)
    seconds = time.monotonic() - begun
    # By tier: what goes to the host tier is copied for it alone.
    left = sum(value for name, value in server.metrics().items() if name.startswith("quire_tier_written_bytes_total"))
    if server.stop() != 0:
        PROBLEMS.append(f"round {number}: the server's exit code is {server.process.returncode}")
    return seconds, texts, left


model = model_file()
kinds = {"none": ()}
if OPTIONS.tier:
    kinds["demoting"] = tuple(shlex.split(OPTIONS.tier))
else:
    kinds["demoting to disk"] = ("--disk-cache", f"{FOLDER}/back:8G", "--write-back")
    kinds["writing behind"] = ("--disk-cache", f"{FOLDER}/behind:8G")
best, texts = {}, None
for number in range(OPTIONS.repeat):
    for kind, tiers in kinds.items():
        folder = next((word.split(":")[0] for word in tiers if word.startswith(FOLDER)), None)
        if folder:
            subprocess.run(["rm", "-rf", folder], check=True)
        seconds, answers, left = run(model, tiers, number)
        texts = texts or answers
        if answers != texts:
            PROBLEMS.append(f"round {number}, {kind}: other answers than without tiers")
        if tiers and left == 0:
            PROBLEMS.append(f"round {number}, {kind}: nothing left the pool")
        if kind not in best or seconds < best[kind][0]:
            best[kind] = (seconds, left)
plain = best["none"][0]
rows = []
for kind, (seconds, left) in best.items():
    rows.append((kind, f"{seconds:.2f}", f"{100 * (seconds / plain - 1):+.1f} %", f"{left / 1e6:.1f}",
                 f"{left / seconds / 1e6:.1f}"))
    if OPTIONS.most_slower and seconds > plain * (1 + OPTIONS.most_slower):
        PROBLEMS.append(f"{kind}: {100 * (seconds / plain - 1):.1f} % slower")
print(f"{OPTIONS.streams} answers of {TOKENS} tokens, and {PROMPTS} new prompts of {OPTIONS.churn} beside them")
table(("tiers", "seconds", "slower", "MB to tiers", "MB a second"), rows)
verdict(PROBLEMS)
