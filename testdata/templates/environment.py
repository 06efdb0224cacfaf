"""The environment that Hugging Face transformers renders chat templates in, at one fixed time."""
import datetime
import json

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
