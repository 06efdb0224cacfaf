#!/usr/bin/env python3
"""Writes what Jinja2 makes of conversations with the chat templates beside this script.

The templates are ours. Each uses the constructs of a family of published ones: tools and turns, reasoning that is cut
out, refusals, documents and contents in parts, headers with tools in the first question, dates and macros, one line
with everything, calls with ids. NAME.json gets the conversations with what NAME.jinja renders to (`expected`) or the
message with which it refuses (`error`).
usage: testdata/chat/generate.py   (needs the jinja2 package; the tests need only the files)
"""
import copy
import json
import pathlib
import sys

import jinja2

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "templates"))
from environment import environment  # noqa: E402

STOCK = {"type": "function", "function": {
    "name": "stock", "description": "What is left of an article", "parameters": {
        "type": "object", "properties": {"article": {"type": "string", "description": "The article's name"}},
        "required": ["article"]}}}
ORDER = {"type": "function", "function": {
    "name": "order", "description": "Orders \"articles\"", "returns": "nothing",
    "parameters": {"type": "object", "properties": {"count": {"type": "integer", "minimum": 1}}}}}


def call(number, name, **arguments):
    return {"id": f"call{number:05}", "type": "function", "function": {"name": name, "arguments": arguments}}


def answer(number, text):
    return {"role": "tool", "tool_call_id": f"call{number:05}", "content": text}


CONVERSATIONS = [
    {"name": "a question", "messages": [{"role": "user", "content": "Who are you?"}], "add_generation_prompt": True},
    {"name": "rules and turns", "messages": [
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": "  What is 7 + 5?  "},
        {"role": "assistant", "content": "12"}, {"role": "user", "content": "And \"6\" - 2?\nThanks <i>"}],
     "add_generation_prompt": True},
    {"name": "an answer at the end", "messages": [
        {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Grüß dich – wie geht's? 😀"}],
     "add_generation_prompt": False},
    {"name": "tools", "messages": [{"role": "user", "content": "Is there any tea?"}], "tools": [STOCK, ORDER],
     "add_generation_prompt": True},
    {"name": "a call and its result", "messages": [
        {"role": "user", "content": "Is there any tea?"},
        {"role": "assistant", "content": "", "tool_calls": [call(1, "stock", article="thé")]},
        answer(1, "{\"left\": 3}")], "tools": [STOCK], "add_generation_prompt": True},
    {"name": "two calls at once", "messages": [
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Order tea if it's out."},
        {"role": "assistant", "content": "Let me see.", "tool_calls": [
            call(1, "stock", article="tea"), call(2, "order", count=2, now=True, note=None)]},
        answer(1, "0"), answer(2, "ordered"), {"role": "assistant", "content": "Two are on their way."}],
     "tools": [STOCK, ORDER], "add_generation_prompt": False},
    {"name": "thoughts", "messages": [
        {"role": "user", "content": "2 + 2?"},
        {"role": "assistant", "content": "<thoughts>\neasy\n</thoughts>\n\n4"}, {"role": "user", "content": "3 + 3?"},
        {"role": "assistant", "content": "<thoughts>\nas easy\n</thoughts>\n\n6"}], "add_generation_prompt": False},
    {"name": "two questions in a row", "messages": [
        {"role": "user", "content": "One?"}, {"role": "user", "content": "Two?"}], "add_generation_prompt": True},
    {"name": "contents in parts", "messages": [
        {"role": "system", "content": [{"type": "text", "text": "Be"}, {"type": "text", "text": "kind."}]},
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is this?"}]}],
     "documents": [{"title": "A", "text": "b"}], "add_generation_prompt": True},
]

for path in sorted(HERE.glob("*.jinja")):
    template = environment.from_string(path.read_text())
    cases = []
    for conversation in copy.deepcopy(CONVERSATIONS):
        variables = {key: value for key, value in conversation.items() if key != "name"}
        try:
            conversation["expected"] = template.render(bos_token="<s>", eos_token="</s>", **copy.deepcopy(variables))
        except jinja2.exceptions.TemplateError as error:  # raise_exception(), or what Jinja2 cannot do
            conversation["error"] = str(error)
            conversation["raised"] = type(error) is jinja2.exceptions.TemplateError
        except TypeError as error:  # Python's own
            conversation["error"] = str(error)
            conversation["raised"] = False
        cases.append(conversation)
    lines = ",\n".join("  " + json.dumps(case) for case in cases)
    path.with_suffix(".json").write_text(f'{{"bos_token": "<s>", "eos_token": "</s>", "cases": [\n{lines}\n]}}\n')
    print(path.name, *("!" if "error" in case else "." for case in cases), sep="")
