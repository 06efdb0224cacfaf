"""What the scripts of this folder share: servers, Redis, requests, clients, tables. Python's standard library alone.

Everything that is started runs on free ports of loopback, in one temporary folder, and is gone when the script ends.
"""
import argparse
import atexit
import http.client
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
DEMO = os.path.join(ROOT, "models", "quire-demo-llama-q8_0.gguf")
HYBRID = os.path.join(ROOT, "models", "quire-demo-hybrid-q8_0.gguf")
FIRST_TOKEN, END_TOKEN = 10, 1500  # ids of ordinary tokens of the demo models


def arguments(description, tools=("redis-server", "redis-cli"), **more):
    """Options of every script, and those in `more`: name=(default, help). `tools`: what must be installed."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--long", action="store_true", help="the long form (default: a short one)")
    parser.add_argument("--binary", default=os.path.join(ROOT, "build/release/src/cli/quire"), help="the program quire")
    parser.add_argument("--folder", help="for temporary files (default: a new one of the system)")
    for name, (default, text) in more.items():
        kind = str if default is None else type(default)
        parser.add_argument("--" + name.replace("_", "-"), default=default, type=kind, help=text)
    options = parser.parse_args()
    if not os.access(options.binary, os.X_OK):
        parser.error(f"{options.binary} is not there: build the target quire")
    for tool in tools:
        if shutil.which(tool) is None:
            parser.error(f"{tool} is not installed (tools/deps.sh clients)")
    return options


# --- what was started, and is ended with the script

_started = []  # processes
_at_end = []   # functions


def temporary_folder(under=None):
    folder = tempfile.mkdtemp(prefix="quire-tiers-", dir=under)
    _at_end.append(lambda: shutil.rmtree(folder, ignore_errors=True))
    return folder


def at_end(function):
    _at_end.append(function)


def _finish():
    for process in _started:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)  # it may be paused
            process.kill()
            process.wait()
    for function in reversed(_at_end):
        function()


atexit.register(_finish)
for _number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(_number, lambda number, frame: sys.exit(128 + number))


def spawn(command, **more):
    # A session of its own: Ctrl-C reaches the script, which ends the rest.
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, **more)
    _started.append(process)
    return process


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until(condition, seconds, what):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(f"waited {seconds} s in vain: {what}")
        time.sleep(0.02)


# --- servers

class Server:
    """One `quire serve`. `tiers`: options that say where its state goes."""

    def __init__(self, options, log, model=DEMO, tiers=(), more=(), user=None):
        self.log = log
        command = [options.binary, "serve", "-m", model, "--port", "0", "--log-format", "none", *tiers, *more]
        with open(log, "ab") as errors:
            self.process = spawn(command, stdout=subprocess.PIPE, stderr=errors, user=user)
        line = self.process.stdout.readline().decode()
        if "listening on http://" not in line:
            self.process.wait()
            with open(log, encoding="utf-8", errors="replace") as text:
                raise RuntimeError(f"the server did not start (code {self.process.returncode}): {text.read()[-500:]}")
        self.port = int(line.rstrip().rstrip("/").rsplit(":", 1)[1])

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        """Ends it as an operator would, and returns its exit code, which should be 0."""
        self.process.terminate()
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()
            return -9

    def alive(self):
        return self.process.poll() is None

    def metrics(self, key=None):
        status, body = call(self.port, "GET", "/metrics", key=key)
        if status != 200:
            raise RuntimeError(f"/metrics: status {status}")
        values = {}
        for line in body.decode().split("\n"):
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                values[name] = float(value)
        return values


class Redis:
    """One redis-server, without persistence."""

    def __init__(self, folder, name="redis", memory="1gb"):
        self.port = free_port()
        self.folder = os.path.join(folder, name)
        self.memory = memory
        os.makedirs(self.folder)
        self.start()

    def start(self):
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir", self.folder, "--save", "",
                   "--appendonly", "no", "--maxmemory", self.memory, "--maxmemory-policy", "allkeys-lru",
                   "--logfile", os.path.join(self.folder, "log")]
        self.process = spawn(command)
        wait_until(lambda: self.command("PING") == "PONG", 20, "Redis does not answer")

    def command(self, *words):
        done = subprocess.run(["redis-cli", "-p", str(self.port), *words], capture_output=True, text=True, check=False)
        return done.stdout.strip()

    def keys(self):
        return int(self.command("DBSIZE") or 0)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def url(self, port=None):
        return f"redis://127.0.0.1:{port or self.port}"


def folder_bytes(folder):
    total = 0
    for path, _, files in os.walk(folder):
        for name in files:
            try:
                total += os.stat(os.path.join(path, name)).st_blocks * 512
            except FileNotFoundError:
                pass
    return total


def wait_for_quiet(measure, seconds=60.0, still=3.0):
    """Waits until what `measure` returns has not changed for `still` seconds. The disk tier writes every two."""
    last, since, end = measure(), time.monotonic(), time.monotonic() + seconds
    while time.monotonic() - since < still and time.monotonic() < end:
        time.sleep(0.1)
        now = measure()
        if now != last:
            last, since = now, time.monotonic()
    return last


# --- requests

def call(port, method, path, body=None, key=None, headers=None, timeout=600):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request(method, path, json.dumps(body) if body is not None else None,
                           {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {}),
                            **(headers or {})})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


class Broken(Exception):
    """A stream that ended before its end, or an answer that is not 200."""


class Answer:
    """A streamed answer: its text, what it says of its usage, and when each event came."""

    def __init__(self, text, finish, usage, begun, times):
        self.text, self.finish, self.usage = text, finish, usage or {}
        self.times = times
        self.first = times[0] - begun  # seconds to the first token
        self.gaps = [after - before for before, after in zip(times, times[1:])]
        self.prompt = self.usage.get("prompt_tokens", 0)
        details = self.usage.get("prompt_tokens_details", {})
        self.cached = details.get("cached_tokens", 0)
        self.cached_from = details.get("cached_from", {})  # tokens by tier, where the server tells it


def ask(port, body, key=None, headers=None, path="/v1/completions", timeout=600):
    """Streams an answer. Raises Broken or OSError."""
    body = {"temperature": 0, "stream": True, "stream_options": {"include_usage": True}, **body}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    begun, times, lines = time.monotonic(), [], []
    try:
        connection.request("POST", path, json.dumps(body),
                           {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {}),
                            **(headers or {})})
        response = connection.getresponse()
        if response.status != 200:
            raise Broken(f"status {response.status}: {response.read()[:200]!r}")
        done = False
        while line := response.readline():
            if not line.startswith(b"data: "):
                continue
            if line.startswith(b"data: [DONE]"):
                done = True
                continue
            times.append(time.monotonic())
            lines.append(line)
        if not done:
            raise Broken("the stream ended too early")
    except http.client.HTTPException as error:
        raise Broken(f"{type(error).__name__}: {error}") from error
    finally:
        connection.close()
    text, finish, usage = "", None, None
    for line in lines:
        event = json.loads(line[6:])
        if "error" in event:
            raise Broken(f"an error in the stream: {event['error'].get('message')}")
        usage = event.get("usage") or usage
        for choice in event["choices"]:
            text += choice["text"] if "text" in choice else choice["delta"].get("content") or ""
            finish = choice.get("finish_reason") or finish
    if finish is None:
        raise Broken("the stream has no finish_reason")
    # The last event has the usage alone.
    return Answer(text, finish, usage, begun, times[:-1] if len(times) > 1 else times)


def tokens_of(seed, count):
    chance = random.Random(seed)
    return [chance.randrange(FIRST_TOKEN, END_TOKEN) for _ in range(count)]


# --- many at once

def in_parallel(jobs, workers):
    """Calls each of `jobs`, `workers` at a time. Returns what they return; the first exception ends it."""
    results, failures, lock, rest = [None] * len(jobs), [], threading.Lock(), iter(range(len(jobs)))

    def work():
        while not failures:
            with lock:
                i = next(rest, None)
            if i is None:
                return
            try:
                results[i] = jobs[i]()
            except Exception as error:  # told below
                with lock:
                    failures.append(error)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(workers, len(jobs)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return results


# --- tables

def table(head, rows):
    """Prints a table: the first column to the left, others to the right."""
    cells = [[str(cell) for cell in row] for row in [head, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    for number, row in enumerate(cells):
        print("  ".join([row[0].ljust(widths[0])] + [cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]))
        if number == 0:
            print("  ".join("-" * width for width in widths))
    sys.stdout.flush()


def milliseconds(seconds):
    return f"{1000 * seconds:.1f}" if seconds < 0.1 else f"{1000 * seconds:.0f}"


def verdict(problems):
    """Prints what is wrong, and ends the script."""
    for problem in problems:
        print(f"FAILED: {problem}")
    if not problems:
        print("all is well")
    sys.exit(1 if problems else 0)
