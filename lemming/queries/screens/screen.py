"""Screens: declarations of the lists that people and programs look at.

A `Screen` is a query and columns. The command's table, the `--json` objects and their schema, the columns in
`docs/cli.md`, the page's table, the MCP tool and the Prometheus samples all come from the declaration, so a new column
is one line. A query is a function `(org, **parameters)`: its docstring is the help of the command, and its annotated
parameters are the options of the command, the parameters of the page and the arguments of the MCP tool. It returns
rows of any type: a column names an attribute or a key of the row, or has a function of the row.

`lemming.queries.screens.screen_registry` lists the screens. A capability declares its own under `screens`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from inspect import Parameter as InspectedParameter
from inspect import signature
from operator import attrgetter
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict, get_args, get_type_hints

from lemming.kernel.base.errors import LemmingError, Problem, UsageError
from lemming.kernel.base.jsontext import did_you_mean
from lemming.kernel.files.field_types import Schema, type_schema

Json = dict[str, Any]
OMITTED: Any = object()
"""The value of a column that a row does not have."""
Shown = Literal["text", "agent", "tick", "time", "why", "call"]
"""The form of a cell on the page: text, or a link to the agent, the tick, or the origin of a file."""
RowStyle = Literal["plain", "dim", "green", "yellow", "red"]


@dataclass(frozen=True)
class Column:
    """A column of a screen: a key of the JSON object, a column of the tables, or both.

    `key` is empty for a cell without a key; `header` is None for a key without a cell. `about`: the meaning, for the
    schema, the documentation and the page. `type`: the JSON type; by default, the type of the attribute in the screen's
    `row`, or a text. `path`: the attribute of the row, as "state.turns"; by default, that of the key. `value`: function
    from a row to the JSON value, in place of the attribute or the key of the row. `text`: function from a row to the
    cell; by default, the value as text. `is_optional`: a row may lack the key
    (`OMITTED`), and the tables omit the column if all rows do. `hides_zeros`: the tables omit the column while no row
    has an amount. `width`: most characters in a terminal; a last column above 160 continues on the next line. `metric`:
    name of the Prometheus counter with the value.
    """

    key: str
    header: str | None = None
    about: str = ""
    type: Any = None
    path: str = ""
    value: Callable[[Any], Any] | None = None
    text: Callable[[Any], str] | None = None
    is_optional: bool = False
    hides_zeros: bool = False
    width: int = 160
    shown: Shown = "text"
    metric: str = ""

    def get(self, row: Any) -> Any:
        """Return the JSON value of a row."""
        if self.value is not None:
            return self.value(row)
        return row[self.key] if isinstance(row, Mapping) else attrgetter(self.path or self.key)(row)

    def format(self, row: Any) -> str:
        """Return the cell of a row."""
        return self.text(row) if self.text is not None else format_value(self.get(row))


class Note(NamedTuple):
    """A sentence below a table. `is_warning`: something needs attention."""

    text: str
    is_warning: bool = False


@dataclass(frozen=True)
class ScreenResult:
    """The result of a query: rows, and sentences below the table. `--json` omits sentences without a warning.

    `total`: the last row of a table, which `--json` omits, or None.
    `problems`: files without a row, or with a wrong row. `errors`: unreadable rows, with which the command fails.
    """

    rows: Sequence[Any]
    notes: Sequence[Note] = ()
    problems: Sequence[Problem] = ()
    errors: Sequence[LemmingError] = ()
    total: Any = None

    def list_table_rows(self, limit: int | None = None) -> list[Any]:
        """Return the first rows, and the total."""
        return [*self.rows[:limit], *([self.total] if self.rows and self.total is not None else [])]


class Table(NamedTuple):
    """A screen as text: the visible columns, and the cells of each row."""

    columns: list[Column]
    cells: list[list[str]]


@dataclass(frozen=True)
class Screen:
    """A declared list.

    `kind`: the `type` of its JSON objects. `title`: the heading on the page. `row`: class of the rows, for the types of
    its attributes. `empty`: the text in place of an empty table. `command`: the command, if not `lemming NAME`. `tool`:
    name of its MCP tool. `inside`: key of the object that holds the rows, if the command prints a single object.
    `is_table`: False if the command prints a line for each row as it comes, without headings. `is_open`: the rows are
    mappings, and their other keys are in the objects too. `is_local`: the list is about this machine or its user, and in no
    report. `style`: function from a row to its colour in a terminal.
    """

    name: str
    kind: str
    title: str
    columns: Sequence[Column]
    query: Callable[..., ScreenResult | Sequence[Any]] | None = None
    row: type | None = None
    empty: str = ""
    command: str = ""
    tool: str = ""
    inside: str = ""
    is_table: bool = True
    is_open: bool = False
    is_local: bool = False
    style: Callable[[Any], RowStyle] = lambda row: "plain"

    @cached_property
    def keys(self) -> list[Column]:
        """The columns that are keys of the JSON objects."""
        return [column for column in self.columns if column.key]

    def load(self, org: Any, parameters: Mapping[str, Any]) -> ScreenResult:
        """Run the query."""
        if self.query is None:
            raise UsageError(f"{self.name} is only a part of the command", hint=f"lemming {self.command or self.name}")
        result = self.query(org, **parameters)
        return result if isinstance(result, ScreenResult) else ScreenResult(result)

    @cached_property
    def parameters(self) -> Mapping[str, tuple[InspectedParameter, Any, Parameter]]:
        """The declared parameters of the query by name, each with its type."""
        declared = signature(self.query, eval_str=True).parameters.values() if self.query else ()
        annotated = [(parameter, get_args(parameter.annotation)) for parameter in declared]
        return {
            parameter.name: (parameter, *arguments[:2])
            for parameter, arguments in annotated
            if len(arguments) > 1 and isinstance(arguments[1], Parameter)
        }

    def parse_parameters(self, texts: Mapping[str, str]) -> Json:
        """Return the values of parameters typed as text. Raises `UsageError` for unknown names and wrong values."""
        return parse_texts(self.name, {name: kind for name, (_, kind, _) in self.parameters.items()}, texts)

    def to_arguments(self, values: Mapping[str, Any]) -> list[str]:
        """Return the words of the command with `--json` for parameter values; None and False are left out."""
        options, arguments = list[str](), list[str]()
        for name, value in values.items():
            usage = self.parameters[name][2].usage
            if not usage.startswith("-"):
                arguments += [] if value is None else [str(value)]
            elif value is True:
                options.append(usage)
            elif value not in (None, False):
                option = [option for option in usage.split() if option.startswith("-")][-1]
                options.append(f"{option}={value}")
        separator = ["--", *arguments] if arguments else []
        return [*(self.command or self.name).split(), *options, "--json", *separator]

    def is_number(self, column: Column) -> bool:
        """Return True for a column of amounts, which the page aligns to the right."""
        return column.shown == "text" and self.type_of(column) in (int, float, int | None, float | None)

    def to_json(self, row: Any) -> Json:
        """Return the JSON object of a row, without `v` and `type`."""
        values = ((column.key, column.get(row)) for column in self.keys)
        return {**(row if self.is_open else {}), **{key: value for key, value in values if value is not OMITTED}}

    def to_table(self, rows: Sequence[Any]) -> Table:
        """Return the cells of rows."""
        columns = [column for column in self.columns if column.header is not None and _has_values(column, rows)]
        return Table(columns, [[column.format(row) for column in columns] for row in rows])

    def type_of(self, column: Column) -> Any:
        """Return the JSON type of a column."""
        if column.type or not self.row:
            return column.type or str
        kind: Any = self.row
        for name in (column.path or column.key).split("."):
            kind = get_type_hints(kind).get(name, str)
        return kind

    @cached_property
    def row_type(self) -> Any:
        """The type of the JSON objects, for their schema."""
        types = {column.key: self.type_of(column) for column in self.keys}
        types |= {column.key: NotRequired[types[column.key]] for column in self.keys if column.is_optional}
        return TypedDict("Row", types)  # type: ignore[operator]

    def schema(self) -> Schema:
        """Return the JSON Schema of the objects, with the meaning of each key."""
        schema = type_schema(self.row_type)
        for column in self.keys:
            if column.about:
                schema["properties"][column.key] = {**schema["properties"][column.key], "description": column.about}
        return {**schema, "additionalProperties": self.is_open}


def _has_values(column: Column, rows: Iterable[Any]) -> bool:
    if column.hides_zeros:
        return any(column.get(row) for row in rows)
    return not column.is_optional or any(column.get(row) is not OMITTED for row in rows)


def parse_texts(subject: str, kinds: Mapping[str, Any], texts: Mapping[str, str]) -> Json:
    """Return the values of parameters typed as text. Raises `UsageError` for unknown names and wrong values."""
    if unknown := next((name for name in texts if name not in kinds), ""):
        hint = did_you_mean(unknown[:80], list(kinds)) or f"use the parameters: {', '.join(kinds) or 'none'}"
        raise UsageError(f'{subject} has no parameter "{unknown[:80]}"', hint=hint)
    return {name: _parse_value(name, kinds[name], text) for name, text in texts.items()}


def _parse_value(name: str, kind: Any, text: str) -> Any:
    if "\0" in text:
        raise UsageError(f"{name} must be text without NUL")
    if kind is bool:
        return text not in ("", "0", "false")
    if kind not in (int, int | None):
        return text
    if not _NUMBER.fullmatch(text):
        raise UsageError(f'{name} must be a number, got "{text[:80]}"', hint=f"{name}=10")
    return int(text)


_NUMBER = re.compile(r"-?[0-9]{1,12}", re.ASCII)


def format_value(value: Any) -> str:
    """Return a JSON value as the text of a cell.

    >>> [format_value(value) for value in (None, 2.50, True, ["ada", "bob"], [], "x")]
    ['-', '2.5', 'yes', 'ada, bob', '-', 'x']
    """
    if value is None or value is OMITTED:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.10g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(format_value, value)) or "-"
    return str(value)


class Parameter(NamedTuple):
    """A parameter of a query, in the annotation of the function's parameter.

    `usage`: "--agent AGENT" for an option, "AGENT" for an argument. `about`: the help text.
    """

    usage: str
    about: str
    minimum: int | None = None

    @property
    def is_agent(self) -> bool:
        """True for an agent's name."""
        return is_agent_metavar(self.usage.rpartition(" ")[2])


def is_agent_metavar(metavar: str) -> bool:
    """Return True for the placeholder of an agent's name.

    >>> is_agent_metavar("[AGENT|on|off]"), is_agent_metavar("PERSON"), is_agent_metavar("N")
    (True, True, False)
    """
    return metavar.strip("[]").partition("|")[0] in ("AGENT", "PERSON")


AgentName = Annotated[str, Parameter("AGENT", "Name of the agent.")]
AnyAgentName = Annotated[str | None, Parameter("AGENT", "Name of an agent; default: all agents.")]
