#!/usr/bin/env python3
"""Faults of the tiers while 32 clients ask: Redis killed, paused, flushed, answering garbage, cutting connections; the
disk full, read-only, gone, corrupted. No answer may be wrong and no request may fail. The longest time between two
tokens of an answer is told beside the one without a fault ("of usual"): at least as long as the longest step. In the
long form it must not be more than twice the usual one.

    tests/tiers/faults.py            at least two seconds of each fault
    tests/tiers/faults.py --long     at least ten seconds of each; for a machine that does nothing else
Some faults of the disk need root (a small file system, another user). Otherwise the script skips them, and says so.
"""
import asyncio
import multiprocessing
import os
import random
import shutil
import subprocess
import threading
import time

from lib import Broken, Redis, Server, arguments, ask, at_end, folder_bytes, milliseconds, table, temporary_folder
from lib import tokens_of, verdict, wait_until

OPTIONS = arguments(__doc__, seconds=(0.0, "of each fault (default: 2; --long: 10)"), clients=(32, "at once"),
                    only=("", "redis or disk: only these faults"), threads=(1, "of the server"),
                    most_longer=(0.0, "fails above so many times the usual time (default: never; --long: 2)"))
MOST_LONGER = OPTIONS.most_longer or (2 if OPTIONS.long else 0)
SECONDS = OPTIONS.seconds or (10 if OPTIONS.long else 2)
PROMPTS, LENGTH, ANSWER = 100, 240, 24
# The pool has room for the sequences that run and for few others: 12,288 tokens, and 32 of them take 8,448. All prompts
# together have 24,000. So most come from the tiers.
SERVER = ("--memory", "48M", "--ctx", "512", "--threads", str(OPTIONS.threads), "--queue", "512")
FOLDER = temporary_folder(OPTIONS.folder)
os.chmod(FOLDER, 0o711)
BODIES = [{"prompt": tokens_of(i, LENGTH), "max_tokens": ANSWER, "ignore_eos": True} for i in range(PROMPTS)]
PROBLEMS, ROWS = [], []


# --- a proxy that damages what passes, in a process of its own

PASS, FLIP_REPLIES, FLIP_BOTH, CUT = range(4)


def damage(data, chance):
    """About one flipped bit in 4 KiB."""
    out = bytearray(data)
    for _ in range(sum(chance.random() < 0.5 for _ in range(2 * (1 + len(out) // 4096)))):
        out[chance.randrange(len(out))] ^= 1 << chance.randrange(8)
    return bytes(out)


def run_proxy(port_out, target, mode):
    chance = random.Random(3)

    async def pump(reader, writer, replies):
        try:
            while data := await reader.read(65536):
                if mode.value == FLIP_BOTH or (mode.value == FLIP_REPLIES and replies):
                    data = damage(data, chance)
                if mode.value == CUT and chance.random() < 0.2:
                    writer.write(data[:chance.randrange(len(data))])
                    break
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        writer.close()

    async def accept(reader, writer):
        try:
            other_reader, other_writer = await asyncio.open_connection("127.0.0.1", target)
        except OSError:
            writer.close()
            return
        await asyncio.gather(pump(reader, other_writer, False), pump(other_reader, writer, True))

    async def serve():
        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        port_out.value = server.sockets[0].getsockname()[1]
        await server.serve_forever()

    asyncio.run(serve())


class Proxy:
    def __init__(self, target):
        context = multiprocessing.get_context("fork")
        self.mode, port = context.Value("i", PASS), context.Value("i", 0)
        self.process = context.Process(target=run_proxy, args=(port, target, self.mode), daemon=True)
        self.process.start()
        at_end(self.process.kill)
        wait_until(lambda: port.value != 0, 20, "the proxy does not listen")
        self.port = port.value


# --- clients

class Load:
    """Clients that ask until they are stopped. Everything is noted with its time."""

    def __init__(self, server, expected):
        self.server, self.expected, self.lock = server, expected, threading.Lock()
        self.done = []      # (time, whether it was right, prompt tokens, found, times of tokens)
        self.failures = []  # (time, why)
        self.stopped = False
        self.threads = [threading.Thread(target=self.run, args=(i,), daemon=True) for i in range(OPTIONS.clients)]
        for thread in self.threads:
            thread.start()

    def run(self, number):
        chance = random.Random(number)
        while not self.stopped:
            which = chance.randrange(PROMPTS)
            try:
                answer = ask(self.server.port, BODIES[which], timeout=120)
                with self.lock:
                    self.done.append((time.monotonic(), answer.text == self.expected[which], answer.prompt,
                                      answer.cached, answer.times))
            except (Broken, OSError) as error:
                with self.lock:
                    self.failures.append((time.monotonic(), str(error)[:120]))
                time.sleep(0.1)

    def wait(self, seconds, answers):
        """At least so long and for so many answers; on a slow machine the answers may be fewer."""
        begun, before = time.monotonic(), len(self.done)
        while (passed := time.monotonic() - begun) < seconds or (
                len(self.done) - before < answers and passed < 30 and self.server.alive()):
            time.sleep(0.05)

    def stop(self):
        self.stopped = True
        for thread in self.threads:
            thread.join()


def experiment(label, server, expected, faults, filled):
    """Runs the clients, first without a fault and then with each one: (name, begin, end). Adds a row for each phase.
    `filled`: whether there is something in the tier."""
    load = Load(server, expected)
    load.wait(SECONDS, 2 * PROMPTS)
    if not filled():
        PROBLEMS.append(f"{label}: there is nothing in the tier")
    phases = []
    for name, begin, end in [("none", None, None), *faults]:
        since = time.monotonic()
        if begin:
            begin()
        load.wait(SECONDS, 2 * OPTIONS.clients)
        if end:
            end()
            load.wait(min(SECONDS, 2), OPTIONS.clients)
        phases.append((name, since, time.monotonic()))
    load.stop()
    usual = None
    for name, since, until in phases:
        # What was still running at the end of the last phase belongs to it.
        until = until if (name, since, until) != phases[-1] else float("inf")
        done = [each for each in load.done if since <= each[0] < until]
        failed = [why for at, why in load.failures if since <= at < until]
        gaps = sorted(after - before for *_, times in load.done for before, after in zip(times, times[1:])
                      if since <= after < until)
        wrong = sum(not right for _, right, *_ in done)
        longest, often = (gaps[-1], gaps[len(gaps) * 999 // 1000]) if gaps else (0, 0)
        usual = usual or longest
        found = sum(each[3] for each in done) / max(1, sum(each[2] for each in done))
        ROWS.append((label, name, len(done), wrong, len(failed), f"{100 * found:.0f}%", milliseconds(often),
                     milliseconds(longest), f"{longest / usual:.2f}" if usual else "-"))
        # A line as soon as it is known: the long form takes minutes.
        print(f"{label}, {name}: {len(done)} answers, {wrong} wrong, {len(failed)} failed, {100 * found:.0f}% found, longest "
              f"{milliseconds(longest)} ms ({longest / usual if usual else 0:.2f} of usual)", flush=True)
        if MOST_LONGER and usual and longest > MOST_LONGER * usual:
            PROBLEMS.append(f"{label}, {name}: {longest / usual:.2f} times the usual time between two tokens")
        if not done:
            PROBLEMS.append(f"{label}, {name}: no request was answered")
        if wrong:
            PROBLEMS.append(f"{label}, {name}: {wrong} wrong answers")
        if failed:
            PROBLEMS.append(f"{label}, {name}: {len(failed)} failed requests, for example: {failed[0]}")
    if not server.alive():
        PROBLEMS.append(f"{label}: the server died with code {server.process.returncode} (see {server.log})")
    elif (code := server.stop()) != 0:
        PROBLEMS.append(f"{label}: the server's exit code is {code}")


# --- the faults

def redis_faults(expected):
    redis = Redis(FOLDER)
    proxy = Proxy(redis.port)
    server = Server(OPTIONS, os.path.join(FOLDER, "redis.log"), tiers=("--shared-cache", redis.url(proxy.port)),
                    more=SERVER)

    def set_mode(mode):
        def change():
            proxy.mode.value = mode
        return change

    def flush():
        end = time.monotonic() + SECONDS / 2
        while time.monotonic() < end:
            redis.command("FLUSHALL")
            time.sleep(0.2)

    experiment("shared", server, expected, [
        ("Redis killed", redis.kill, redis.start),
        ("Redis paused", redis.pause, redis.resume),
        ("Redis flushed", flush, None),
        ("flipped bits in replies", set_mode(FLIP_REPLIES), set_mode(PASS)),
        ("flipped bits both ways", set_mode(FLIP_BOTH), set_mode(PASS)),
        ("connections cut", set_mode(CUT), set_mode(PASS)),
    ], lambda: redis.keys() > PROMPTS)


def corrupt(folder):
    """Flips a bit in every 4 KiB of every file."""
    chance = random.Random(5)
    for path, _, files in os.walk(folder):
        for name in files:
            try:
                with open(os.path.join(path, name), "r+b") as file:
                    size = os.fstat(file.fileno()).st_size
                    for at in range(0, size, 4096):
                        place = chance.randrange(at, min(at + 4096, size))
                        file.seek(place)
                        byte = file.read(1)[0]
                        file.seek(place)
                        file.write(bytes([byte ^ 1 << chance.randrange(8)]))
            except FileNotFoundError:
                pass  # the server removes files meanwhile


def on_disk(expected, name, faults, folder=None, size="1G", user=None):
    """A server with a disk tier of its own. `faults` gets the folder."""
    folder = folder or os.path.join(FOLDER, name)
    os.makedirs(folder, exist_ok=True)
    if user:
        shutil.chown(folder, user)
    server = Server(OPTIONS, os.path.join(FOLDER, name + ".log"), tiers=("--disk-cache", f"{folder}:{size}"),
                    more=SERVER, user=user)
    experiment("disk", server, expected, faults(folder), lambda: folder_bytes(folder) > 1 << 20)
    return folder


def disk_full(expected):
    mount = os.path.join(FOLDER, "small")
    os.makedirs(mount)
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=640m", "tmpfs", mount],
                                           stderr=subprocess.DEVNULL, check=False).returncode != 0:
        print("skipped: a full disk (a small file system cannot be mounted)")
        return
    at_end(lambda: subprocess.run(["umount", "-l", mount], check=False))
    filler = os.path.join(mount, "filler")

    def fill():
        with open(filler, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(1 << 16))
            except OSError:
                pass

    on_disk(expected, "full", lambda folder: [("disk full", fill, lambda: os.remove(filler))],
            os.path.join(mount, "cache"), "256M")


def read_only(expected):
    def set_writable(folder, writable):
        for path, _, _ in os.walk(folder):
            os.chmod(path, 0o755 if writable else 0o555)

    user = "nobody" if os.geteuid() == 0 else None
    on_disk(expected, "readonly", lambda folder: [
        ("folder read-only", lambda: set_writable(folder, False), lambda: set_writable(folder, True))], user=user)


def disk_faults(expected):
    disk_full(expected)
    try:
        read_only(expected)
    except (RuntimeError, PermissionError) as error:
        print(f"skipped: a folder that is read-only ({error})")
    on_disk(expected, "gone", lambda folder: [
        ("folder removed", lambda: shutil.rmtree(folder, ignore_errors=True), None)])
    folder = on_disk(expected, "corrupt", lambda folder: [("files corrupted", lambda: corrupt(folder), None)])
    corrupt(folder)
    on_disk(expected, "restart", lambda folder: [("more of the same", lambda: corrupt(folder), None)], folder)


alone = Server(OPTIONS, os.path.join(FOLDER, "alone.log"), more=(*SERVER, "--no-prefix-cache"))
right = [ask(alone.port, body).text for body in BODIES]
alone.stop()
if OPTIONS.only in ("", "redis"):
    redis_faults(right)
if OPTIONS.only in ("", "disk"):
    disk_faults(right)
print(f"{OPTIONS.clients} clients, {PROMPTS} prompts of {LENGTH} tokens, {SECONDS} s of each fault; times are between two "
      "tokens")
table(("tier", "fault", "answers", "wrong", "failed", "found", "99.9%, ms", "longest, ms", "of usual"), ROWS)
verdict(PROBLEMS)
