#!/usr/bin/env python3
"""Two tenants send the same prompts, and neither finds anything of the other: not in the pool, not on the disk, not in
the shared store, not after kill -9, not on another server. Each finds its own everywhere, so the test would notice.

    tests/tiers/isolation.py [--long] [--model FILE]       a transformer and a hybrid; --long: more and longer prompts
"""
import os
import subprocess

from lib import DEMO, HYBRID, Redis, Server, arguments, ask, folder_bytes, table, temporary_folder, tokens_of, verdict
from lib import wait_for_quiet

OPTIONS = arguments(__doc__, model=(None, "only this model (default: the two demo models)"))
PROMPTS = [(seed, length) for seed, length in enumerate((1200, 400, 90) * (5 if OPTIONS.long else 1))]
FOLDER = temporary_folder(OPTIONS.folder)
PROBLEMS, ROWS = [], []


def new_keys(name):
    """A file of keys with ann and bob; returns it and their keys."""
    path = os.path.join(FOLDER, name)
    keys = [subprocess.run([OPTIONS.binary, "keys", "add", who, "--keys", path], check=True, capture_output=True,
                           text=True).stdout.strip() for who in ("ann", "bob")]
    return path, keys


def ask_all(server, key, answers):
    """Tokens that were found of all prompts, and where. Answers are the same, whatever was found."""
    found, origins = 0, set()
    for seed, length in PROMPTS:
        answer = ask(server.port, {"prompt": tokens_of(seed, length), "max_tokens": 8, "ignore_eos": True}, key=key)
        found += answer.cached
        origins.update(name for name, tokens in answer.cached_from.items() if tokens > 0)
        if answers.setdefault(seed, answer.text) != answer.text:
            PROBLEMS.append(f"prompt {seed}: another answer than the first one")
    return found, origins


def check(label, where, result, expected):
    """`expected`: something must be found, in the cache that `where` begins with. Otherwise nothing may be found."""
    found, origins = result
    fine = found > 0 if expected else found == 0
    if expected and origins and where.split(":")[0] not in origins:
        PROBLEMS.append(f"{label}: {where}: found in {origins}")
    ROWS.append((label, where, found, "its own" if expected else "nothing", "yes" if fine else "NO"))
    if not fine:
        PROBLEMS.append(f"{label}: {where}: {found} tokens found, and {'some' if expected else 'none'} expected")


def run(model, label):
    path, (ann, bob) = new_keys(f"{label}.keys")
    redis = Redis(FOLDER, f"{label}-redis")
    disk = os.path.join(FOLDER, f"{label}-disk")
    on_disk, shared = ("--disk-cache", f"{disk}:1G"), ("--shared-cache", redis.url())
    answers, log = {}, os.path.join(FOLDER, f"{label}.log")

    def start(tiers, keys=path):
        return Server(OPTIONS, log, model, tiers, ("--keys", keys, "--threads", "1"))

    server = start((*on_disk, *shared))
    check(label, "pool: ann, for the first time", ask_all(server, ann, answers), False)
    check(label, "pool: bob, what ann has sent", ask_all(server, bob, answers), False)
    check(label, "pool: ann again", ask_all(server, ann, answers), True)
    server.kill()
    # From here on only ann's objects are in the tiers: bob's are removed with them, and ann asks alone.
    redis.command("FLUSHALL")
    subprocess.run(["rm", "-rf", disk], check=True)
    server = start((*on_disk, *shared))
    ask_all(server, ann, answers)
    wait_for_quiet(lambda: (folder_bytes(disk), redis.keys()))
    server.kill()
    for where, tiers in (("disk", on_disk), ("shared", shared)):
        server = start(tiers)
        check(label, f"{where}: bob, after kill -9", ask_all(server, bob, answers), False)
        check(label, f"{where}: ann, after kill -9", ask_all(server, ann, answers), True)
        if server.stop() != 0:
            PROBLEMS.append(f"{label}: {where}: the server's exit code is {server.process.returncode}")
    # A server without keys is one more tenant. So are plain keys.
    server = Server(OPTIONS, log, model, (*on_disk, *shared), ("--threads", "1"))
    check(label, "disk and shared: a server without keys", ask_all(server, None, answers), False)
    server.stop()
    plain = ("--threads", "1", "--api-key", "cat", "--api-key", "dog")
    server = Server(OPTIONS, log, model, (*on_disk, *shared), plain)
    check(label, "disk and shared: a plain key", ask_all(server, "cat", answers), False)
    check(label, "disk and shared: another plain key", ask_all(server, "dog", answers), False)
    server.stop()


for each in [OPTIONS.model] if OPTIONS.model else [DEMO, HYBRID]:
    run(each, os.path.basename(each).split(".")[0].removeprefix("quire-demo-"))
table(("model", "where, and who asks", "tokens found", "should find", "right"), ROWS)
verdict(PROBLEMS)
