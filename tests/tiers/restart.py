#!/usr/bin/env python3
"""A long prompt before and after kill -9: the time to the first token cold, warm in the pool, from host memory (of a
GPU), from the disk, from Redis. All answers must be the same, and what a tier had must have been found.

"MB read": what the tiers read for the prompt, by their metrics. Of a hybrid model that is a small part of what they
have: the pages and one state, not all states. "of reading": the time to the first token without the step that computes
it, as a multiple of the time that reading so many bytes takes, at the speed of reading all files of the disk tier, one
after the other. From the disk the goal is at most 1.3. The script says whether it was reached, and fails only for
wrong answers and for what was not found: times depend on what else the machine does. A tier has whole blocks, so this
step computes the rest of the prompt too: up to 16 tokens. "the step" is measured in the pool, with other last tokens
after the same whole blocks; where the pool has all but one token, it is a step of the answer.

    tests/tiers/restart.py                    the demo models and a prompt of 1,500 tokens
    tests/tiers/restart.py --long             llama-1.1b and granite-h-350m in Q8_0, made by `quire synth`, and a prompt
                                              of 4,096 tokens (2 GB in --folder, removed afterwards)
    tests/tiers/restart.py --model FILE --tokens N
    tests/tiers/restart.py --long --server "--device cuda" --host 8G --memory 420M      on a GPU
"""
import os
import random
import shlex
import subprocess
import time

from lib import DEMO, HYBRID, Redis, Server, arguments, ask, call, folder_bytes, milliseconds, table, temporary_folder
from lib import tokens_of, verdict, wait_for_quiet

OPTIONS = arguments(__doc__, model=(None, "only this model"), tokens=(0, "of the prompt (default: 1500; --long: 4096)"),
                    threads=(0, "of the server (default: all)"), repeat=(3, "starts from each tier; the best counts"),
                    memory=("", "of the pool (default: the server's)"),
                    host=("", "size of the host tier, on a GPU; --memory must be too small for nine prompts"),
                    server=("", "more options for every server"))
FOLDER = temporary_folder(OPTIONS.folder)
TOKENS = OPTIONS.tokens or (4096 if OPTIONS.long else 1500)
ANSWER, OTHERS, MOST_OF_READING, BLOCK = 16, 8, 1.3, 16
WHOLE = (TOKENS - 1) // BLOCK * BLOCK  # tokens in whole blocks: what a tier can have, since the last one is computed
PROBLEMS, ROWS = [], []


def models():
    if OPTIONS.model:
        yield os.path.basename(OPTIONS.model), OPTIONS.model
    elif not OPTIONS.long:
        yield "llama", DEMO
        yield "hybrid", HYBRID
    else:
        for shape in ("llama-1.1b", "granite-h-350m"):
            path = os.path.join(FOLDER, shape + ".gguf")
            subprocess.run([OPTIONS.binary, "synth", "--shape", shape, "--type", "Q8_0", "--context", str(2 * TOKENS), "-o",
                            path], check=True, stdout=subprocess.DEVNULL)
            yield shape, path
            os.remove(path)


def forget_files(folder):
    """Takes the files of a folder out of the page cache, so that they are read from the disk."""
    os.sync()
    for path, _, files in os.walk(folder):
        for name in files:
            file = os.open(os.path.join(path, name), os.O_RDONLY)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file)


def read_files(folder):
    """Seconds that it takes to read all files of a folder, one after the other, and their bytes. Short form: from the
    page cache, because other tests keep the disk busy."""
    if OPTIONS.long:
        forget_files(folder)
    begun, total = time.monotonic(), 0
    for path, _, files in os.walk(folder):
        for name in sorted(files):
            with open(os.path.join(path, name), "rb", buffering=0) as file:
                while piece := file.read(8 << 20):
                    total += len(piece)
    return time.monotonic() - begun, total


def ask_and_count(server, body):
    """An answer. `read`: the bytes that the tiers read for it."""
    def bytes_read():
        return sum(value for name, value in server.metrics().items() if name.startswith("quire_tier_read_bytes_total"))
    before = bytes_read()
    answer = ask(server.port, body)
    answer.read = bytes_read() - before
    return answer


def run(label, model):
    redis = Redis(FOLDER, f"{label}-redis", "8gb")
    disk = os.path.join(FOLDER, f"{label}-disk")
    log = os.path.join(FOLDER, f"{label}.log")
    on_disk, shared = ("--disk-cache", f"{disk}:8G"), ("--shared-cache", redis.url())
    more = [*(("--threads", str(OPTIONS.threads)) if OPTIONS.threads else ()),
            *(("--memory", OPTIONS.memory) if OPTIONS.memory else ()), "--ctx", str(TOKENS + ANSWER + 16),
            *shlex.split(OPTIONS.server)]
    chance = random.Random(1)
    warm_up = {"prompt": [chance.randrange(10, 1500) for _ in range(40)], "max_tokens": ANSWER, "ignore_eos": True}
    body = {"prompt": [chance.randrange(10, 1500) for _ in range(TOKENS)], "max_tokens": ANSWER, "ignore_eos": True}
    first, rows, rest = {}, [], {}

    def start(tiers):
        server = Server(OPTIONS, log, model, tiers, more)
        ask(server.port, {**warm_up, "prompt": [chance.randrange(10, 1500) for _ in range(40)]})
        return server

    def note(where, answers, expected):
        best = min(answers, key=lambda answer: answer.first)
        first[where] = best.first
        if any(answer.text != first.setdefault("answer", answer.text) for answer in answers):
            PROBLEMS.append(f"{label}: {where}: another answer than cold")
        # A server whose disk is busy with other things may rightly compute instead. The best one did not.
        if (best.cached > TOKENS // 2) != expected:
            PROBLEMS.append(f"{label}: {where}: {best.cached} of {TOKENS} tokens found")
        figures = best.usage["quire"]
        step = (figures["total_ms"] - figures["first_token_ms"]) / 1000 / (ANSWER - 1)
        tier = {"host": "host", "disk": "disk", "Redis": "shared"}.get(where.split(",")[0])
        if tier and best.cached_from and not best.cached_from.get(tier):
            PROBLEMS.append(f"{label}: {where}: nothing came from there: {best.cached_from}")
        rows.append((where, best, rest["step"] if rest and best.cached == WHOLE else step))

    server = start((*on_disk, *shared))
    note("cold", [ask_and_count(server, body)], False)
    wait_for_quiet(lambda: (folder_bytes(disk), redis.keys()))
    note("pool", [ask_and_count(server, body) for _ in range(OPTIONS.repeat)], True)
    ends = [ask(server.port, {**body, "max_tokens": 1, "prompt": body["prompt"][:WHOLE] + tokens_of(i, TOKENS - WHOLE)})
            for i in range(OPTIONS.repeat)]
    if any(answer.cached != WHOLE for answer in ends):
        PROBLEMS.append(f"{label}: other last tokens: {[answer.cached for answer in ends]} found instead of {WHOLE}")
    rest["step"] = min(answer.first for answer in ends)
    server.kill()
    if OPTIONS.host:
        server = start(("--host-cache", OPTIONS.host))
        answers = [ask(server.port, body)]
        for _ in range(OPTIONS.repeat):
            for _ in range(OTHERS):  # they push it out of the pool
                ask(server.port, {**body, "prompt": [chance.randrange(10, 1500) for _ in range(TOKENS)]})
            answers.append(ask_and_count(server, body))
        server.kill()
        note("host, after eviction", answers[1:], True)

    seconds, total = read_files(disk)
    answers = []
    for _ in range(OPTIONS.repeat):
        server = start(on_disk)
        if OPTIONS.long:
            forget_files(disk)
        answers.append(ask_and_count(server, body))
        server.kill()
    note("disk, after kill -9", answers, True)
    answers = []
    for _ in range(OPTIONS.repeat):
        server = start(shared)
        answers.append(ask_and_count(server, body))
        server.kill()
    note("Redis, after kill -9", answers, True)
    server = Server(OPTIONS, log, model, (*on_disk, *shared), more)
    note("both, after kill -9", [ask_and_count(server, body)], True)
    status, _ = call(server.port, "GET", "/health")
    if status != 200 or server.stop() != 0:
        PROBLEMS.append(f"{label}: /health {status}, the server's exit code is {server.process.returncode}")
    print(f"{label}: reading all {total / 1e6:.1f} MB of the disk tier takes {milliseconds(seconds)} ms")
    for where, best, one_step in rows:
        reading = seconds * best.read / total  # of what the prompt needed
        of_reading = f"{(best.first - one_step) / reading:.2f}" if reading > 0 else "-"
        ROWS.append((label, where, milliseconds(best.first), f"{first['cold'] / best.first:.1f}", best.cached,
                     milliseconds(one_step), f"{best.read / 1e6:.1f}", of_reading))
        if where.startswith("disk") and reading > 0:
            goal = MOST_OF_READING * reading + one_step
            print(f"{label}: {best.read / 1e6:.1f} MB of it were read; that takes {milliseconds(reading)} ms. The goal "
                  f"is {MOST_OF_READING} times that and the step, {milliseconds(goal)} ms; the first token took "
                  f"{milliseconds(best.first)} ms: {'reached' if best.first <= goal else 'NOT REACHED'}")
    redis.kill()


for name, file in models():
    run(name, file)
table(("model", "prompt from", "first token, ms", "times faster", "tokens found", "the step, ms", "MB read",
       "of reading"), ROWS)
verdict(PROBLEMS)
