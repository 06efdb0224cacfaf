#!/usr/bin/env python3
"""A server on the GPU under load: 200 streams for 30 seconds, in a pool for about a dozen of them, so that answers are
suspended and resumed (on the CPU, to try this script: 24 for 5 seconds). Every answer must equal the one that the same
prompt gets alone, and the server must end with code 0.

    tests/gpu/serve.py FOLDER REPOSITORY [DEVICE]     FOLDER: where tests/gpu/run has unpacked the programs
"""
import http.client
import json
import random
import subprocess
import sys
import threading
import time

FOLDER, REPOSITORY = sys.argv[1], sys.argv[2]
DEVICE = sys.argv[3] if len(sys.argv) > 3 else "cuda"
PORT, PROMPTS, TOKENS = 8097, 40, 160
STREAMS, SECONDS = (24, 5) if DEVICE == "cpu" else (200, 30)
COMMAND = [f"{FOLDER}/lib/ld-linux-x86-64.so.2", "--library-path", f"{FOLDER}/lib", f"{FOLDER}/quire", "serve",
           "-m", f"{REPOSITORY}/models/quire-demo-llama-q8_0.gguf", "--device", DEVICE, "--port", str(PORT),
           "--ctx", "640", "--memory", "16M", "--queue", "400", "--log-format", "none"]


def call(method, path, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=100)
    connection.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"})
    response = connection.getresponse()
    return response.status, response.read()


def ask(prompt, stream, priority=0):
    """The text of an answer; of a stream, what its events say together."""
    body = {"model": "default", "prompt": prompt, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True,
            "stream": stream, "priority": priority}
    status, answer = call("POST", "/v1/completions", body)
    if status != 200:
        raise RuntimeError(f"status {status}: {answer[:200]}")
    if not stream:
        return json.loads(answer)["choices"][0]["text"]
    events = [line[6:] for line in answer.decode().split("\n") if line.startswith("data: ") and line != "data: [DONE]"]
    return "".join(choice["text"] for event in events for choice in json.loads(event)["choices"])


def main():
    server = subprocess.Popen(COMMAND, cwd=REPOSITORY, stdout=subprocess.DEVNULL)
    fine = False
    try:
        for _ in range(300):
            try:
                if call("GET", "/health")[0] == 200:
                    break
            except OSError:
                time.sleep(0.2)
        prompts = [[random.Random(i).randrange(10, 1500) for _ in range(20 + 9 * i)] for i in range(PROMPTS)]
        alone = [ask(prompt, False) for prompt in prompts]
        end, lock, counts = time.time() + SECONDS, threading.Lock(), {"same": 0, "different": 0, "errors": {}}

        def client(number):
            chance = random.Random(1000 + number)
            while time.time() < end:
                which = chance.randrange(PROMPTS)
                try:
                    answer = ask(prompts[which], True, chance.randrange(3) - 1)
                    outcome = "same" if answer == alone[which] else "different"
                    with lock:
                        counts[outcome] += 1
                except Exception as error:  # counted, and the test fails
                    with lock:
                        counts["errors"][str(error)[:80]] = counts["errors"].get(str(error)[:80], 0) + 1

        threads = [threading.Thread(target=client, args=(number,)) for number in range(STREAMS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        metrics = call("GET", "/metrics")[1].decode().split("\n")
        suspensions = sum(float(line.split()[1]) for line in metrics if line.startswith("quire_suspensions_total"))
        print(f"{STREAMS} streams, {SECONDS} s: {counts}, {suspensions:.0f} suspensions")
        fine = counts["same"] > 0 and counts["different"] == 0 and not counts["errors"] and suspensions > 0
    finally:
        server.terminate()
        code = server.wait()
        print("the server's exit code:", code)
    return 0 if fine and code == 0 else 1


sys.exit(main())
