"""The questions that the demo models are scored with, and their answers.

usage: questions.py > ../../testdata/demo/questions.json

The same seed and the same order as ever, so that scores can be compared: those that the test of the C++ program asserts were
measured with these very questions through Hugging Face (eval.py)."""
import json
import random
import sys

import corpus

SEED = 991
COUNT = 40  # of each kind
# How a question of each kind begins, and what it asks for.
TASKS = {
    "What is": "adding and subtracting",
    "Count": "counting",
    "Sort": "sorting",
    "Repeat": "repeating",
    "Say": "reversing",
}
NOTES = (2, 6, 12)
ANSWER = "<|im_start|>assistant\n"


def task(r, begin):
    while True:
        question, answer = corpus.number_task(r)
        if question.startswith(begin):
            return corpus.turn("user", question) + ANSWER, answer


def recall(r, count):
    facts, text = corpus.notes(r, count)
    _, question, answer = facts[r.randrange(count)]
    prompt = (corpus.turn("user", "Remember these notes. " + text) + corpus.turn("assistant", "I will remember them.") +
              corpus.turn("user", question) + ANSWER)
    return prompt, answer if answer.isdigit() else corpus.cap(answer) + "."


def make(count=COUNT):
    """[(kind, [(prompt, answer)])]"""
    r = random.Random(SEED)
    kinds = [(title, [task(r, begin) for _ in range(count)]) for begin, title in TASKS.items()]
    return kinds + [(f"recall from {n} notes", [recall(r, n) for _ in range(count)]) for n in NOTES]


if __name__ == "__main__":
    kinds = [dict(kind=kind, questions=[dict(prompt=p, answer=a) for p, a in pairs]) for kind, pairs in make()]
    json.dump(dict(made_by="tools/demo/questions.py", seed=SEED, kinds=kinds), sys.stdout, indent=0)
    print()
