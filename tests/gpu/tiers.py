#!/usr/bin/env python3
"""State that outlives the pool, on a GPU: a long prompt cold, from the pool, from pinned host memory after it was
evicted, and from the disk after kill -9. Every answer must equal the one of a server without caches, and what was
evicted must really come from host memory.

    tests/gpu/tiers.py FOLDER REPOSITORY [DEVICE]     FOLDER: where tests/gpu/run has unpacked the programs
"""
import http.client
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

FOLDER, REPOSITORY = sys.argv[1], sys.argv[2]
DEVICE = sys.argv[3] if len(sys.argv) > 3 else "cuda"
PORT = 8098
START = [f"{FOLDER}/lib/ld-linux-x86-64.so.2", "--library-path", f"{FOLDER}/lib", f"{FOLDER}/quire"]
TOKENS, OTHERS = (4000, 8) if DEVICE == "cuda" else (400, 4)
SHAPES = [("llama-1.1b", "Q8_0", "420M"), ("mistral-7b", "Q8_0", "2100M"), ("granite-h-350m", "Q8_0", "200M")]
if DEVICE == "cpu":
    SHAPES = [("granite-h-350m", "Q8_0", "200M")]


def call(method, path, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=200)
    connection.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"})
    response = connection.getresponse()
    return response.status, response.read()


def ask(prompt):
    body = {"prompt": prompt, "max_tokens": 24, "temperature": 1, "seed": 7, "ignore_eos": True}
    status, answer = call("POST", "/v1/completions", body)
    if status != 200:
        raise RuntimeError(f"status {status}: {answer[:300]}")
    answer = json.loads(answer)
    usage = answer["usage"]
    return answer["choices"][0]["text"], usage["quire"]["first_token_ms"], usage["prompt_tokens_details"]


def host_hits():
    """Objects that host memory gave back, by /metrics."""
    for line in call("GET", "/metrics")[1].decode().splitlines():
        if line.startswith('quire_tier_hits_total{tier="host"} '):
            return float(line.split()[-1])
    return 0


class Server:
    def __init__(self, model, memory, *options):
        self.process = subprocess.Popen(
            START + ["serve", "-m", model, "--device", DEVICE, "--port", str(PORT), "--memory", memory, "--ctx",
                     str(TOKENS + 96), "--log-format", "none", *options], cwd=REPOSITORY, stdout=subprocess.DEVNULL)
        for _ in range(600):
            try:
                if call("GET", "/health")[0] == 200:
                    return
            except OSError:
                time.sleep(0.1)
        raise RuntimeError("the server did not start")

    def end(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        return self.process.wait()


def main():
    fine = True
    for shape, kind, memory in SHAPES:
        model, disk = f"{FOLDER}/tiers.gguf", f"{FOLDER}/disk"
        shutil.rmtree(disk, ignore_errors=True)
        subprocess.run(START + ["synth", "--shape", shape, "--type", kind, "--context", str(TOKENS + 96), "-o", model],
                       check=True, stdout=subprocess.DEVNULL)
        prompts = [[random.Random(i).randrange(10, 1500) for _ in range(TOKENS)] for i in range(OTHERS + 1)]
        plain = Server(model, memory)
        right = [ask(prompt)[0] for prompt in prompts]
        plain.end()
        caches = ["--disk-cache", f"{disk}:8G"] + (["--host-cache", "8G"] if DEVICE == "cuda" else [])
        server = Server(model, memory, *caches)
        rows = [("cold", ask(prompts[0])), ("pool", ask(prompts[0]))]
        wrong = sum(ask(prompt)[0] != text for prompt, text in zip(prompts[1:], right[1:]))
        hits = host_hits()
        rows.append(("evicted", ask(prompts[0])))
        hits = host_hits() - hits
        rows.append(("pool again", ask(prompts[0])))
        time.sleep(4)
        server.end(signal.SIGKILL)
        server = Server(model, memory, *caches)
        ask([random.Random(99).randrange(10, 1500) for _ in range(200)])  # what computing costs is known then
        rows.append(("after kill -9", ask(prompts[0])))
        metrics = call("GET", "/metrics")[1].decode()
        code = server.end()
        print(f"{shape} {kind}: {TOKENS} tokens, pool {memory}; {wrong} of {OTHERS} others differ; exit code {code}")
        for name, (text, first, details) in rows:
            same = text == right[0]
            fine = fine and same
            print(f"  {name:<14} first token after {first:8.1f} ms  {'same' if same else 'DIFFERENT'}  "
                  f"{json.dumps({key: details[key] for key in details if key.startswith('cached')})}")
        if DEVICE == "cuda":
            details = dict(rows)["evicted"][2]
            tokens = details["cached_from"].get("host", 0)
            # Tokens are counted by their pages. Of a hybrid model the pool may still have those, and not the state.
            came = hits > 0 and details["cached_tokens"] > TOKENS // 2 and (tokens > 0 or shape.startswith("granite"))
            fine = fine and came
            print(f"  evicted: {hits:.0f} objects and {tokens} tokens from host memory{'' if came else ': TOO FEW'}")
        for line in metrics.splitlines():
            if line.startswith("quire_tier") and not line.endswith(" 0"):
                print("   ", line)
        fine = fine and wrong == 0 and code == 0
        os.remove(model)
    return 0 if fine else 1


sys.exit(main())
