#!/usr/bin/env python3
"""Fills in what Jinja2 makes of the templates in the JSON files beside this script.

Each file has `variables` and `cases`; a case has a `template` and, written by this script, what it renders to
(`expected`) or how Jinja2 fails (`error`). The environment is the one Hugging Face transformers sets up.
usage: testdata/templates/generate.py   (needs the jinja2 package; the tests need only the files)
"""
import json
import pathlib

from environment import environment


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
