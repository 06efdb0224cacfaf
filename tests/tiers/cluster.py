#!/usr/bin/env python3
"""Conversations of five turns over nginx, three servers and a Redis cluster (tools/cluster.sh), every turn on any
server. Half way one server is killed with kill -9. Every answer must be the one that a server without any tier gives,
and every conversation must end; the client may retry a broken stream once. Says what share of the prompts' tokens was
found, beside what one server with the memory of all three finds. Before that: calls of a session with one X-Quire-Route
all reach the server that has it.

    tests/tiers/cluster.py            12 conversations
    tests/tiers/cluster.py --long     300 conversations
"""
import json
import os
import random
import shutil
import signal
import subprocess
import threading

from lib import DEMO, ROOT, Broken, Server, arguments, ask, at_end, call, in_parallel, table, temporary_folder, verdict

OPTIONS = arguments(__doc__, conversations=(0, "how many (default: 12; --long: 300)"), model=(DEMO, "the model"),
                    servers=(3, "of Quire"), memory=(48, "MiB of each server's pool"),
                    clients=(0, "conversations at once (default: 4; --long: 24)"), route=("random", "random, or by "
                    "conversation: each stays on one server while that lives"))
COUNT = OPTIONS.conversations or (300 if OPTIONS.long else 12)
CLIENTS = OPTIONS.clients or (24 if OPTIONS.long else 4)
TURNS = 5
WORDS = ("a the small old red house dog cat bird tree river stone page book story king queen child night day went saw "
         "said took gave found under over behind with without and then because when").split()
FOLDER = temporary_folder(OPTIONS.folder)
PROBLEMS = []

for tool in ("nginx", "curl"):
    if shutil.which(tool, path=os.environ["PATH"] + ":/usr/sbin") is None:
        raise SystemExit(f"cluster.py: {tool} is not installed (tools/deps.sh clients)")


def sentence(chance, words):
    return " ".join(chance.choice(WORDS) for _ in range(words))


class Conversation:
    """The questions are known from the start, the answers become part of the next prompt."""

    def __init__(self, number):
        chance = random.Random(number)
        # A third of them has the same system prompt, the others have one of their own.
        system = sentence(random.Random(-1), 60) if number % 3 == 0 else sentence(chance, 60)
        self.number, self.messages, self.turn = number, [{"role": "system", "content": system}], 0
        self.questions = [sentence(chance, 40) + "?" for _ in range(TURNS)]
        self.answers, self.prompt, self.cached, self.retries = [], 0, 0, 0

    def next(self, port):
        """One turn."""
        self.messages.append({"role": "user", "content": self.questions[self.turn]})
        body = {"messages": self.messages, "max_tokens": 40, "ignore_eos": True}
        headers = {"X-Quire-Route": f"conversation {self.number}"} if OPTIONS.route != "random" else None
        try:
            answer = ask(port, body, path="/v1/chat/completions", headers=headers)
        except (Broken, OSError):
            self.retries += 1
            answer = ask(port, body, path="/v1/chat/completions", headers=headers)
        self.messages.append({"role": "assistant", "content": answer.text})
        self.answers.append(answer.text)
        self.prompt += answer.prompt
        self.cached += answer.cached
        self.turn += 1


def converse(port, half_way=None):
    """All conversations, the turns of all of them in a random order. Returns them."""
    conversations = [Conversation(number) for number in range(COUNT)]
    turns = [conversation for conversation in conversations for _ in range(TURNS)]
    random.Random(7).shuffle(turns)
    busy = [threading.Lock() for _ in conversations]
    done, lock = [0], threading.Lock()

    def turn(conversation):
        with busy[conversation.number]:  # one after the other
            conversation.next(port)
        with lock:
            done[0] += 1
            reached = done[0] == len(turns) // 2
        if reached and half_way:
            half_way()

    in_parallel([lambda each=each: turn(each) for each in turns], CLIENTS)
    return conversations


def share(conversations):
    return sum(each.cached for each in conversations) / sum(each.prompt for each in conversations)


# --- one server, without tiers, with the memory of all
log = os.path.join(FOLDER, "alone.log")
alone = Server(OPTIONS, log, OPTIONS.model, (), ("--memory", f"{OPTIONS.memory * OPTIONS.servers}M"))
expected = converse(alone.port)
alone.stop()
small = Server(OPTIONS, log, OPTIONS.model, (), ("--memory", f"{OPTIONS.memory}M"))
one_small = converse(small.port)
small.stop()

# --- the cluster
cluster = os.path.join(FOLDER, "the cluster")  # a path with a space
script = [os.path.join(ROOT, "tools", "cluster.sh")]
at_end(lambda: subprocess.run([*script, "stop", "-d", cluster], check=False, stderr=subprocess.DEVNULL))
started = subprocess.run([*script, "start", "-d", cluster, "-b", OPTIONS.binary, "-m", OPTIONS.model, "-n",
                          str(OPTIONS.servers), "--", "--memory", f"{OPTIONS.memory}M", "--threads", "1",
                          "--log-format", "none"], capture_output=True, text=True, check=False)
if started.returncode != 0:
    raise SystemExit(f"cluster.py: the cluster did not start: {started.stderr}")
def port_of(name):
    with open(os.path.join(cluster, name, "port"), encoding="ascii") as file:
        return int(file.read())


nginx = port_of("nginx")


def use_session(number):
    """A session is on one server. Its client sends the same header from the first call on."""
    headers = {"X-Quire-Route": f"session {number}"}
    made, body = call(nginx, "POST", "/v1/sessions", {}, headers=headers)
    if made != 201:
        return PROBLEMS.append(f"session {number}: status {made}: {body[:200]!r}")
    session = json.loads(body)["id"]
    for question in ("a cat?", "and a dog?"):
        chat = {"session": session, "messages": [{"role": "user", "content": question}], "max_tokens": 4}
        status, body = call(nginx, "POST", "/v1/chat/completions", chat, headers=headers)
        if status != 200:
            PROBLEMS.append(f"session {number}: a chat has status {status}: {body[:200]!r}")
    status, body = call(nginx, "GET", f"/v1/sessions/{session}", headers=headers)
    if status != 200 or json.loads(body)["message_count"] != 4:
        PROBLEMS.append(f"session {number}: status {status}, {body[:200]!r} after two chats")
    servers = [call(port_of(f"quire{i + 1}"), "GET", f"/v1/sessions/{session}")[0] for i in range(OPTIONS.servers)]
    if sorted(servers) != [200] + [404] * (OPTIONS.servers - 1):
        PROBLEMS.append(f"session {number}: the servers answer {servers} and not 200 once")


for i in range(6):  # some for each server
    use_session(i)


def kill_one():
    with open(os.path.join(cluster, "quire2", "pid"), encoding="ascii") as pid:
        os.kill(int(pid.read().split()[0]), signal.SIGKILL)


found = converse(nginx, kill_one if OPTIONS.servers > 1 else None)

wrong = sum(a != b for mine, right in zip(found, expected) for a, b in zip(mine.answers, right.answers))
if wrong:
    PROBLEMS.append(f"{wrong} of {COUNT * TURNS} answers are not those of a server without tiers")
ended = sum(len(each.answers) == TURNS for each in found)
if ended != COUNT:
    PROBLEMS.append(f"{COUNT - ended} conversations did not end")
if share(found) < 0.5 * share(one_small):
    PROBLEMS.append("the cluster finds less than half of what one of its servers finds alone")
status = subprocess.run([*script, "status", "-d", cluster], capture_output=True, text=True, check=False)
dead = [line.split()[0] for line in status.stdout.split("\n") if "does not run" in line]
if dead != (["quire2"] if OPTIONS.servers > 1 else []):
    PROBLEMS.append(f"these do not run: {dead}")
# What was killed comes back with the options of the first start, wherever the second is called.
again = subprocess.run([*script, "start", "-d", cluster, "-m", "/no/such/model"], cwd="/", capture_output=True,
                       text=True, check=False)
if again.returncode != 0 or subprocess.run([*script, "status", "-d", cluster], stdout=subprocess.DEVNULL,
                                           check=False).returncode != 0:
    PROBLEMS.append(f"what was killed does not come back: {again.stderr}")

rows = []
for label, conversations in ((f"one server, {OPTIONS.memory * OPTIONS.servers} MiB", expected),
                             (f"one server, {OPTIONS.memory} MiB", one_small),
                             (f"{OPTIONS.servers} servers of {OPTIONS.memory} MiB and Redis, one killed", found)):
    rows.append((label, sum(len(each.answers) == TURNS for each in conversations),
                 sum(each.prompt for each in conversations), f"{100 * share(conversations):.1f}%",
                 sum(each.retries for each in conversations)))
print(f"{COUNT} conversations of {TURNS} turns, {CLIENTS} at once, route: {OPTIONS.route}; {wrong} wrong answers")
table(("", "ended", "prompt tokens", "found", "retried"), rows)
verdict(PROBLEMS)
