"""Writes the parts of `docs/cli.md`, `events.md`, `checks.md`, `resume.md`, `settings.md`, `glossary.md`,
`plans.md` that follow from the code, and `llms.txt`, which follows from the index of the pages.

    python -m lemming.reference docs

What stands above the mark in each page is written by people and is kept.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import re
import sys
import textwrap
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import typer

import lemming.capabilities.batches.records
import lemming.kernel.journal.events
from lemming.cli import COMMANDS, ROOT_HELP, WITHIN, load_command, make_app
from lemming.commands.screen import tell
from lemming.facts.findings.rules import RULES
from lemming.kernel.files import fs
from lemming.kernel.files.documents import adapter, whole_of
from lemming.kernel.files.fitting import key_of
from lemming.kernel.journal.events import Event
from lemming.kernel.journal.records import Record, all_kinds
from lemming.kernel.org.blocks import FindingSettings
from lemming.kernel.org.config import Org
from lemming.kernel.org.models import ModelEntry
from lemming.kernel.org.resume import Agent, Allocation
from lemming.kernel.plugins.capabilities import class_of_format

MARK = "<!-- Everything below is generated: `make docs`. -->"

_WHAT_IT_IS = (
    "An organisation of AI agents in a folder: each agent is a directory with a resume.json, agents talk "
    "only by writing entries into their own outbox, a clock of ticks decides who runs, all state is JSON "
    "files, and a kill at any moment loses nothing. The command is `lemming`."
)

Schema = dict[str, Any]


def pages(folder: Path) -> dict[str, str]:
    """Return what the pages should say, by their names in `folder`."""
    generated = {
        "cli.md": command_line(),
        "events.md": events(),
        "resume.md": resume(),
        "settings.md": settings(),
        "glossary.md": types(),
        "checks.md": findings(),
        "plans.md": "## Keys\n\n" + _table_of_keys(class_of_format("plan")),
    }
    marked = {name: f"{_by_people(folder / name)}{MARK}\n\n{text}" for name, text in generated.items()}
    return {**marked, "llms.txt": for_models((folder / "README.md").read_text("utf-8"))}


def for_models(index: str) -> str:
    """Return the index of the pages as https://llmstxt.org wants it: a title, what it is, lists of links.

    Each entry is on one line. The section for coding agents is what links here, and is left out.
    """
    lists = index[index.index("## ") : index.index("## For coding agents")]
    on_one_line = re.sub(r"\n  +", " ", lists).strip()
    return f"# LeMMing\n\n> {_WHAT_IT_IS}\n\n{on_one_line}\n"


def main(folder: Path) -> None:
    """Write the pages."""
    for name, text in pages(folder).items():
        fs.publish(folder, name, text.encode())
        tell(str(folder / name))


def _by_people(page: Path) -> str:
    return page.read_text("utf-8").partition(MARK)[0] if page.exists() else ""


# --- findings ------------------------------------------------------------------------------------


def findings() -> str:
    """Return a table of the kinds of findings, with what each means and from when on it is told."""
    limits = {one.name: one for one in dataclasses.fields(FindingSettings)}
    rows = ["| kind | | is not | from when on |", "|---|---|---|---|"]
    for rule in RULES:
        limit = limits.get(rule.kind)
        told = f"`{rule.kind}`: {limit.default}. {limit.metadata['description']}" if limit else "at once"
        rows.append(f"| `{rule.kind}`: {rule.title} | {rule.means} | {rule.spares} | {told} |")
    return "\n".join(["### Kinds\n", *rows, ""])


# --- events --------------------------------------------------------------------------------------


def events() -> str:
    """Return a table of the events, those that the journal keeps first."""
    modules = (lemming.kernel.journal.events, lemming.capabilities.batches.records)
    others = [kind for it in modules for kind in vars(it).values() if _is_event(kind)]
    tables = {"In the journal": [*all_kinds().values()], "Beside it": others}
    parts = []
    for title, kinds in tables.items():
        rows = [f"| `{kind.__name__}` | {_fields_of(kind)} | {_first_sentence(kind)} |" for kind in kinds]
        parts.append("\n".join([f"## {title}\n", "| event | fields | |", "|---|---|---|", *rows, ""]))
    return "\n".join(parts)


def _is_event(kind: Any) -> bool:
    return (
        isinstance(kind, type)
        and issubclass(kind, Event)
        and not issubclass(kind, Record)
        and kind is not Event
    )


def _fields_of(kind: type[Event]) -> str:
    names = typing.get_type_hints(kind).keys() - typing.get_type_hints(Event).keys()
    return ", ".join(f"`{name}`" for name in typing.get_type_hints(kind) if name in names)


def _first_sentence(kind: type[Event]) -> str:
    return " ".join(str(kind.__doc__).partition("\n\n")[0].split())


# --- the command line --------------------------------------------------------------------------


def command_line() -> str:
    """Return a section for every command: usage, what it does, its arguments and options."""
    root = typer.main.get_command(make_app())
    folder = ["`-C <path>`, `--root <path>`", f"{ROOT_HELP} Environment: `LEMMING_ROOT`."]
    parts = ["## Global options\n", _parameters(root, typer.Context(root, info_name="lemming"), folder)]
    for title, section in COMMANDS.items():
        parts.append(f"## {title}\n")
        for name in section:
            outer = next((f"lemming {each} {name}" for each, inner in WITHIN.items() if name in inner), "")
            parts += _command(load_command(name), f"lemming {name}", outer)
    return "\n".join(parts)


def _command(command: Any, path: str, other: str = "") -> Iterator[str]:
    """Yield the sections of a command; `other`: what it is called where it stands within another."""
    inner = getattr(command, "commands", None)
    if inner:
        for name, one in inner.items():
            yield from _command(one, f"{path} {name}", other and f"{other} {name}")
        return
    context = typer.Context(command, info_name=path)
    yield f"### {path}\n"
    yield f"```text\n{path} {' '.join(command.collect_usage_pieces(context))}\n```\n"
    yield _prose(command.help or "")
    if other:
        yield f"Also `{other}`.\n"
    if parameters := _parameters(command, context):
        yield parameters


def _prose(text: str) -> str:
    """Return help text as Markdown: paragraphs, and the blocks whose lines are kept as code."""
    paragraphs = []
    for block in re.split(r"\n\s*\n", text.strip()):
        if not block.startswith("\b"):
            paragraphs.append(textwrap.fill(" ".join(block.split()), 100, break_on_hyphens=False))
            continue
        lines = [line for line in block.split("\n")[1:] if not line.startswith("Example")]
        code = "\n".join(line.removeprefix("  ") for line in lines)
        paragraphs.append(f"```sh\n{code}\n```")
    return "\n\n".join(paragraphs) + "\n"


def _parameters(command: Any, context: Any, *more: list[str]) -> str:
    rows = [*more, *(_parameter(one, context) for one in command.params if "--json" not in one.opts)]
    return _table(["Parameter", "Meaning"], rows) if rows else ""


def _parameter(parameter: Any, context: Any) -> list[str]:
    is_argument = parameter.param_type_name == "argument"
    names = [parameter.display_name_raw] if is_argument else parameter.opts
    takes_value = not is_argument and not parameter.is_flag
    value = f" {parameter.metavar or parameter.display_type(context)}" if takes_value else ""
    about = parameter.help or ""
    if takes_value and parameter.default not in (None, "", False):
        about += f" Default: `{parameter.default}`."
    if variable := getattr(parameter, "envvar", None):
        about += f" Environment: `{variable}`."
    return [", ".join(f"`{name}{value}`" for name in names), about]


# --- the resume --------------------------------------------------------------------------------


def resume() -> str:
    """Return a table of every key of a resume: its type, its default, what it means."""
    return "## Keys\n\n" + _table_of_keys(Agent)


def settings() -> str:
    """Return a table of the keys of each file of `config/`."""
    tables: dict[str, Any] = {"config/models.json": ModelEntry, "config/org.json": Org}
    tables |= {"config/credits.json": Allocation, "config/calendar.json": class_of_format("calendar")}
    tables |= {"config/mcp.json": class_of_format("mcp")}
    return "\n".join(f"## {file}\n\n{_table_of_keys(kind)}" for file, kind in tables.items())


def _table_of_keys(kind: Any) -> str:
    schema: Schema = adapter(kind).json_schema()
    rows = list(_keys(whole_of(kind), schema, schema.get("$defs", {}), ""))
    return _table(["Key", "Type", "Default", "Meaning"], rows)


def _keys(kind: Any, schema: Schema, definitions: Schema, prefix: str) -> Iterator[list[str]]:
    """Yield a row for each key of an object, and after it those of the object or the list that it holds."""
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        key, own = f"{prefix}{key_of(field)}", schema["properties"][key_of(field)]
        hint = hints[field.name]
        inner: Any = next(filter(dataclasses.is_dataclass, (hint, *typing.get_args(hint))), None)
        held: Schema = definitions.get(inner.__name__, {}) if inner else {}
        about = own.get("description") or held.get("description", "")
        stands_above = inner is not None and issubclass(kind, inner)
        about = f"{about} Each has the keys above this one." if stands_above else about
        kind_in_words = _type_in_words(own)
        default = _default_in_words(field)
        # Where null is refused, a default of null stands for a key that is not there.
        takes_null = kind_in_words == "any JSON" or "null" in kind_in_words
        default = "not there" if default == "`null`" and not takes_null else default
        yield [f"`{key}`", kind_in_words, default, about]
        if inner is not None and not stands_above:
            mark = {list: "[]", dict: ".*"}.get(typing.get_origin(hint) or hint, "")
            yield from _keys(inner, held, definitions, f"{key}{mark}.")


def _type_in_words(schema: Schema) -> str:
    if "$ref" in schema:
        return "object"
    if "anyOf" in schema:
        return " or ".join(_type_in_words(branch) for branch in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(f'`"{value}"`' for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_type_in_words(schema['items'])}"
    words = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false",
             "null": "null", "object": "object"}  # fmt: skip
    text = words.get(schema.get("type", ""), "any JSON")
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        return f"{text}, {_number(low)} to {_number(high)}"
    if "exclusiveMinimum" in schema:
        most = f", at most {_number(high)}" if high is not None else ""
        return f"{text} above {_number(schema['exclusiveMinimum'])}{most}"
    return f"{text}, at least {_number(low)}" if low is not None else text


def _number(value: float) -> str:
    return f"{value:g}" if value >= 1e9 or value != int(value) else str(int(value))


def _default_in_words(field: Any) -> str:
    if field.default is not dataclasses.MISSING:
        return f"`{json.dumps(field.default)}`"
    if field.default_factory is dataclasses.MISSING:
        return "required"
    made = field.default_factory()
    return "as below" if dataclasses.is_dataclass(made) else f"`{json.dumps(made)}`"


def _table(headings: list[str], rows: list[list[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


# --- the types of the code ----------------------------------------------------------------------


def types() -> str:
    """Return a table of the classes that more than one module uses: where each is, and what."""
    found = sorted(public_types(), key=lambda each: (each.name.lower(), each.module))
    rows = [[f"`{each.name}`", f"`{each.module}`", each.about] for each in found if each.family is None]
    return f"## Types\n\n{_ABOUT_TYPES}\n\n{_table(['type', 'module', 'what it is'], rows)}"


_ABOUT_TYPES = """Classes that more than one module uses. Families that stand elsewhere: errors
(`lemming.errors`), commands ([cli.md](cli.md)), backends (`lemming/capabilities/hosted/`), records of
the journal and their parts ([formats.md](formats.md)), and what tests use (`lemming.testing`)."""
FAMILIES = (
    "base.errors",
    "commands",
    "capabilities.hosted",
    "journal.records",
    "journal.record_parts",
    "testing",
)


class PublicType(NamedTuple):
    """A class that another module of the package imports. `family`: where it belongs, if not in the table."""

    name: str
    module: str
    about: str
    family: str | None


def public_types() -> Iterator[PublicType]:
    """Yield the classes without an underscore that another module imports; found without importing any."""
    root = Path(__file__).parent
    trees = {
        ".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): ast.parse(
            file.read_bytes()
        )
        for file in sorted(root.rglob("*.py"))
    }
    imported = {
        (node.module, name.name)
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    }
    for module, tree in trees.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and (f"lemming.{module}", node.name) in imported:
                family = next((family for family in FAMILIES if f"{module}.".startswith(f"{family}.")), None)
                about = (ast.get_docstring(node) or "").split("\n\n")[0].replace("\n", " ")
                yield PublicType(node.name, f"lemming.{module}", about, family)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
