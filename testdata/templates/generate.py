#!/usr/bin/env python3
"""Fills in what Jinja2 makes of the templates in the JSON files beside this script.

Each file has `variables` and `cases`; a case has a `template` and, written by this script, what it renders to
(`expected`) or how Jinja2 fails (`error`). The environment is the one Hugging Face transformers sets up.
usage: testdata/templates/generate.py   (needs the jinja2 package; the tests need only the files)
"""
import datetime
import json
import pathlib

import jinja2
import jinja2.ext
import jinja2.sandbox

NOW = datetime.datetime(2024, 7, 26, 13, 5, 9)


class Generation(jinja2.ext.Extension):
    """{% generation %} as a block that prints what is in it."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_run"), [], [], body).set_lineno(line)

    def _run(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
environment.filters["tojson"] = tojson
environment.globals["raise_exception"] = raise_exception
environment.globals["strftime_now"] = NOW.strftime


def run(template, variables):
    try:
        return {"template": template, "expected": environment.from_string(template).render(**variables)}
    except Exception as error:  # whatever Python raises, the template has failed
        return {"template": template, "error": str(error)}


for path in sorted(pathlib.Path(__file__).parent.glob("*.json")):
    if path.name == "left_out.json":  # what Jinja2 can do and Quire leaves out, and how that fails
        continue
    data = json.loads(path.read_text())
    cases = [run(case["template"], json.loads(json.dumps(data["variables"]))) for case in data["cases"]]
    lines = ",\n".join("  " + json.dumps(case, ensure_ascii=True) for case in cases)
    variables = json.dumps(data["variables"], ensure_ascii=True)
    path.write_text(f'{{"variables": {variables},\n "cases": [\n{lines}\n]}}\n')
    print(path.name, len(cases))
