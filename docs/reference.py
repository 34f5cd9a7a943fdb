"""Generate the reference sections of documentation pages from the code, and `llms.txt` from the index.

The pages are `docs/cli.md`, `events.md`, `settings.md`, `TROUBLESHOOTING.md` and `plans.md`.

    python -m docs.reference docs

The text above the mark in each page is written by people and is kept.
"""

from __future__ import annotations

import dataclasses
import json
import re
import sys
import textwrap
import typing
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import typer

import lemming.kernel.journal.engine_events
from lemming.cli import ROOT_HELP, load_command, make_app
from lemming.commands.command_table import COMMANDS, GROUPS, OLD_COMMANDS, OLD_SUBCOMMANDS, SUBCOMMANDS
from lemming.kernel.files import fs
from lemming.kernel.files.fast_decoder import file_key
from lemming.kernel.files.json_documents import adapter, expand_type
from lemming.kernel.journal.engine_events import Event
from lemming.kernel.journal.journal_records import Record
from lemming.kernel.org.config import OrgSettings
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.org.resume import Agent, Allocation
from lemming.kernel.org.settings_blocks import FindingSettings
from lemming.kernel.plugins.capability_loader import load_provided
from lemming.kernel.plugins.capability_table import provided
from lemming.queries.findings.finding_rules import CHECKS
from lemming.queries.format_schemas import record_classes
from lemming.queries.screens.screen import Column, Screen
from lemming.queries.screens.screen_registry import iter_screens

MARK = "<!-- Everything below is generated: `make docs`. -->"

_SUMMARY = (
    "An organisation of AI agents in a folder: each agent is a directory with a resume.json, agents talk "
    "only by writing entries into their own outbox, a clock of ticks decides who runs, all state is JSON "
    "files, and a kill at any moment loses nothing. The command is `lemming`."
)

Schema = dict[str, Any]


def generate_pages(folder: Path) -> dict[str, str]:
    """Return the generated content of the pages, by file name in `folder`."""
    generated = {
        "cli.md": render_command_line(),
        "events.md": render_events(),
        "settings.md": render_settings_keys(),
        "TROUBLESHOOTING.md": render_findings(),
        "plans.md": "## Keys\n\n" + _render_keys(load_provided("formats", "plan")),
    }
    marked = {name: f"{_load_manual_part(folder / name)}{MARK}\n\n{text}" for name, text in generated.items()}
    return {**marked, "llms.txt": generate_llms_txt((folder / "README.md").read_text("utf-8"))}


def generate_llms_txt(index: str) -> str:
    """Return the index of the pages in the format of https://llmstxt.org: title, summary, lists of links.

    Each entry is on one line. The section for coding agents links to this file, and is left out.
    """
    lists = index[index.index("## ") : index.index("## For coding agents")]
    on_one_line = re.sub(r"\n  +", " ", lists).strip()
    return f"# LeMMing\n\n> {_SUMMARY}\n\n{on_one_line}\n"


def main(folder: Path) -> None:
    """Write the pages."""
    for name, text in generate_pages(folder).items():
        fs.write_atomic(folder, name, text.encode())
        print(folder / name)


def _load_manual_part(page: Path) -> str:
    return page.read_text("utf-8").partition(MARK)[0] if page.exists() else ""


# --- findings ------------------------------------------------------------------------------------


def render_findings() -> str:
    """Return a table of the kinds of findings, with the meaning and the reporting threshold of each."""
    limits = {limit_field.name: limit_field for limit_field in dataclasses.fields(FindingSettings)}
    rows = ["| kind | meaning | not reported | reported from |", "|---|---|---|---|"]
    for rule in CHECKS:
        limit = limits.get(rule.name)
        threshold = f"`{rule.name}`: {limit.default}. {limit.metadata['description']}" if limit else "at once"
        rows.append(f"| `{rule.name}`: {rule.title} | {rule.meaning} | {rule.exclusions} | {threshold} |")
    return "\n".join(["#### Kinds\n", *rows, ""])


# --- events --------------------------------------------------------------------------------------


def render_events() -> str:
    """Return a table of the events, journaled events first."""
    # dict: each module once, in the order of the table
    modules = dict.fromkeys(import_path.partition(":")[0] for _, import_path in provided("records").values())
    event_modules = (lemming.kernel.journal.engine_events, *map(import_module, modules))
    unrecorded_kinds = [kind for module in event_modules for kind in vars(module).values() if _is_event(kind)]
    tables = {"In the journal": [*record_classes().values()], "Beside it": unrecorded_kinds}
    parts = []
    for title, kinds in tables.items():
        rows = [f"| `{kind.__name__}` | {_list_fields(kind)} | {_first_sentence(kind)} |" for kind in kinds]
        parts.append("\n".join([f"## {title}\n", "| event | fields | |", "|---|---|---|", *rows, ""]))
    return "\n".join(parts)


def _is_event(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Event) and not issubclass(kind, Record) and kind is not Event


def _list_fields(kind: type[Event]) -> str:
    names = typing.get_type_hints(kind).keys() - typing.get_type_hints(Event).keys()
    return ", ".join(f"`{name}`" for name in typing.get_type_hints(kind) if name in names)


def _first_sentence(kind: type[Event]) -> str:
    return " ".join(str(kind.__doc__).partition("\n\n")[0].split())


# --- the command line --------------------------------------------------------------------------


def render_command_line() -> str:
    """Return a section for each command: arguments, description, examples and options.

    Options of many commands are described once, in a table; the commands list their names.
    """
    root = typer.main.get_command(make_app())
    folder = ("`-C <path>`, `--root <path>`", f"{ROOT_HELP} Environment: `LEMMING_ROOT`.")
    rows = [list(folder), *map(list, _iter_parameters(root, typer.Context(root, info_name="lemming")))]
    commands = {
        title: [
            command
            for name in section
            for path in (name, *(f"{name} {inner}" for inner in SUBCOMMANDS.get(name, ())))
            for command in _iter_commands(load_command(path), f"lemming {path}")
        ]
        for title, section in COMMANDS.items()
    }
    uses = Counter(
        parameter
        for section in commands.values()
        for path, command in section
        for parameter in _iter_parameters(command, typer.Context(command, info_name=path))
    )
    common = sorted(parameter for parameter, count in uses.items() if count >= _COMMON_FROM)
    parts = ["## Global options\n", _render_table(["Option", "Meaning"], rows)]
    parts += ["## Common arguments and options\n", _render_table(["Name", "Meaning"], [list(row) for row in common])]
    for title, section in commands.items():
        parts.append(f"## {title}\n")
        for path, command in section:
            parts += _render_command(command, path, common)
    return "\n".join(parts)


_COMMON_FROM = 4
"""Number of commands from which on a parameter is described once for all."""
_TEXT_WIDTH = 150


def _iter_commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the path and the command, or those of each subcommand."""
    if not getattr(command, "commands", None):
        yield path, command
        return
    for name, subcommand in command.commands.items():
        yield from _iter_commands(subcommand, f"{path} {name}")


def _render_command(command: Any, path: str, common: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield heading, description, examples and parameters of a command."""
    context = typer.Context(command, info_name=path)
    pieces = [piece for piece in command.collect_usage_pieces(context) if piece != "[OPTIONS]"]
    arguments = re.sub(r"[{}]", "", " ".join(pieces)).replace("[[", "[").replace("]]", "]")
    yield f"### {path} {arguments}".rstrip() + "\n"
    yield _to_markdown(command.help or "", _describe_other_names(path))
    parameters = list(_iter_parameters(command, context))
    lines = [f"- {names}: {about}" for names, about in parameters if (names, about) not in common]
    if shared := [names for names, about in parameters if (names, about) in common]:
        lines.append(f"- Common: {'; '.join(shared)}.")
    if lines:
        yield "\n".join(textwrap.fill(line, _TEXT_WIDTH, subsequent_indent="  ") for line in lines) + "\n"
    for screen in iter_screens():
        if path == f"lemming {screen.command or screen.name}":
            yield render_columns(screen)


def render_columns(screen: Screen) -> str:
    """Return a table of the columns of a screen, with the keys of its JSON objects."""
    schema = screen.schema()["properties"]
    rows = [
        [
            column.header or "",
            f"`{column.key}`" if column.key else "",
            _describe_column_type(schema, column),
            column.about,
        ]
        for column in screen.columns
        if column.key or column.header
    ]
    return f'Columns, and keys of the objects of type "{screen.kind}":\n\n' + _render_table(
        ["Column", "Key", "Type", "Meaning"], rows
    )


def _describe_column_type(schema: Schema, column: Column) -> str:
    kind = schema[column.key].get("type", "") if column.key else ""
    return " or ".join(kind) if isinstance(kind, list) else kind


def _describe_other_names(path: str) -> str:
    """Return a sentence with the path within a group and the old name, if any."""
    _, name, *subcommands = path.split()
    groups = [group for group, inner in GROUPS.items() if name in inner]
    words = path.removeprefix("lemming ")
    old_names = [old for old, new in OLD_COMMANDS.items() if new in (name, words)]
    old_names += [f"{name} {old}" for old, new in OLD_SUBCOMMANDS.get(name, {}).items() if subcommands[:1] == [new]]
    sentences = [f"Also: `lemming {' '.join([group, name, *subcommands])}`." for group in groups]
    sentences += [f"Old name: `lemming {old}`." for old in old_names]
    return " ".join(sentences)


def _to_markdown(text: str, note: str) -> str:
    """Return help text as Markdown: paragraphs, the first with a note, and blocks with preserved lines as code."""
    paragraphs = []
    for index, block in enumerate(re.split(r"\n\s*\n", text.strip())):
        if not block.startswith("\b"):
            tokens = [*block.split(), *(note.split(" ") if index == 0 and note else ())]
            paragraphs.append(textwrap.fill(" ".join(tokens), _TEXT_WIDTH, break_on_hyphens=False))
            continue
        lines = [line for line in block.split("\n")[1:] if not line.startswith("Example")]
        paragraphs.append("\n".join(f"    {line.removeprefix('  ')}".rstrip() for line in lines))
    return "\n\n".join(paragraphs) + "\n"


def _iter_parameters(command: Any, context: Any) -> Iterator[tuple[str, str]]:
    """Yield the names and the meaning of each parameter except --json."""
    for parameter in command.params:
        if "--json" not in parameter.opts:
            yield _describe_parameter(parameter, context)


def _describe_parameter(parameter: Any, context: Any) -> tuple[str, str]:
    is_argument = parameter.param_type_name == "argument"
    names = parameter.opts
    if is_argument:
        name = parameter.display_name_raw.strip("[]")
        names = [name if parameter.required else f"[{name}]"]
    takes_value = not is_argument and not parameter.is_flag
    value = f" {parameter.metavar or parameter.display_type(context)}" if takes_value else ""
    about = parameter.help or ""
    if takes_value and parameter.default not in (None, "", False):
        about += f" Default: `{parameter.default}`."
    if variable := getattr(parameter, "envvar", None):
        about += f" Environment: `{variable}`."
    return ", ".join(f"`{name}{value}`" for name in names), about


# --- the resume and settings -----------------------------------------------------------------------


def render_settings_keys() -> str:
    """Return a table of every key of a resume, and of each file of `config/`, with type, default and meaning."""
    tables: dict[str, Any] = {"agents/NAME/resume.json": Agent, "config/models.json": ModelEntry}
    tables |= {"config/org.json": OrgSettings, "config/credits.json": Allocation}
    tables |= {
        "config/calendar.json": load_provided("formats", "calendar"),
        "config/mcp.json": load_provided("formats", "mcp"),
    }
    return "\n".join(f"## {file}\n\n{_render_keys(kind)}" for file, kind in tables.items())


def _render_keys(kind: Any) -> str:
    schema: Schema = adapter(kind).json_schema()
    rows = list(_iter_key_rows(expand_type(kind), schema, schema.get("$defs", {}), ""))
    return _render_table(["Key", "Type", "Default", "Meaning"], rows)


def _iter_key_rows(kind: Any, schema: Schema, definitions: Schema, prefix: str) -> Iterator[list[str]]:
    """Yield a row for each key of an object, followed by the rows of a nested object or list."""
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        key, key_schema = f"{prefix}{file_key(field)}", schema["properties"][file_key(field)]
        hint = hints[field.name]
        inner: Any = next(filter(dataclasses.is_dataclass, (hint, *typing.get_args(hint))), None)
        inner_schema: Schema = definitions.get(inner.__name__, {}) if inner else {}
        about = key_schema.get("description") or inner_schema.get("description", "")
        is_recursive = inner is not None and issubclass(kind, inner)
        about = f"{about} Each has the keys above this one." if is_recursive else about
        type_text = _describe_type(key_schema)
        default = _describe_default(field)
        # Where null is refused, a default of null stands for a key that is not there.
        takes_null = type_text == "any JSON" or "null" in type_text
        default = "not there" if default == "`null`" and not takes_null else default
        yield [f"`{key}`", type_text, default, about]
        if inner is not None and not is_recursive:
            mark = {list: "[]", dict: ".*"}.get(typing.get_origin(hint) or hint, "")
            yield from _iter_key_rows(inner, inner_schema, definitions, f"{key}{mark}.")


def _describe_type(schema: Schema) -> str:
    if "$ref" in schema:
        return "object"
    if "anyOf" in schema:
        return " or ".join(_describe_type(branch) for branch in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(f'`"{value}"`' for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_describe_type(schema['items'])}"
    type_names = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false",
             "null": "null", "object": "object"}  # fmt: skip
    text = type_names.get(schema.get("type", ""), "any JSON")
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        return f"{text}, {_format_number(low)} to {_format_number(high)}"
    if "exclusiveMinimum" in schema:
        maximum_text = f", at most {_format_number(high)}" if high is not None else ""
        return f"{text} above {_format_number(schema['exclusiveMinimum'])}{maximum_text}"
    return f"{text}, at least {_format_number(low)}" if low is not None else text


def _format_number(value: float) -> str:
    return f"{value:g}" if value >= 1e9 or value != int(value) else str(int(value))


def _describe_default(field: Any) -> str:
    if field.default is not dataclasses.MISSING:
        return f"`{json.dumps(field.default)}`"
    if field.default_factory is dataclasses.MISSING:
        return "required"
    default_value = field.default_factory()
    return "as below" if dataclasses.is_dataclass(default_value) else f"`{json.dumps(default_value)}`"


def _render_table(headings: list[str], rows: list[list[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
