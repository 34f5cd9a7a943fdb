"""Shared parts of commands: command context, common parameters, and parsers of typed values."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial, wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer.core import TyperGroup

from lemming.commands.error_reporting import CommandSession, print_error, print_problem
from lemming.commands.terminal import (
    one_line,
    output_mode,
    print_data,
    print_json,
    print_notice,
    print_table,
    print_text,
    print_warning,
    show_progress_bar,
    style_text,
)
from lemming.kernel.agents import Agent, list_agent_folders, load_agent
from lemming.kernel.agents import require_agent_folder as require_agent_folder
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, NotAnOrg, UsageError
from lemming.kernel.base.integers import to_int
from lemming.kernel.base.jsontext import JsonProblem, did_you_mean, parse
from lemming.kernel.base.times import DURATIONS, parse_duration
from lemming.kernel.org.organisation import Organisation, OrgPath, require_known_format
from lemming.operations.engine_lock import describe_engine as describe_engine
from lemming.operations.engine_lock import find_running_engine as find_running_engine
from lemming.operations.engine_lock import is_tick_incomplete as is_tick_incomplete
from lemming.queries.screens.screen import Screen, ScreenResult, is_agent_metavar
from lemming.read_model.build_options import BuildOptions

if TYPE_CHECKING:
    from lemming.kernel.messages import OutboxEntry

T = TypeVar("T")


class CommandContext:
    """Context of a command, the first argument: the organisation and the output format. `as_json`: print objects."""

    def __init__(self, typer_context: typer.Context, *, as_json: bool) -> None:
        self.typer_context, self.as_json, self.omitted = typer_context, as_json, 0

    @cached_property
    def org(self) -> Organisation:
        """The organisation of the command; see `find_org`."""
        return find_org(self.typer_context)

    @property
    def root_option(self) -> str | None:
        """The folder of -C or LEMMING_ROOT, or None."""
        return _get_root_option(self.typer_context)

    @property
    def org_if_any(self) -> Organisation | None:
        """The organisation, or None if there is none and none was requested."""
        if self.root_option is not None:
            return self.org
        try:
            return self.org
        except NotAnOrg:
            return None

    def limit_rows(self, items: Sequence[T], limit: int | None) -> Sequence[T]:
        """Return the first `limit` items; the number of omitted items is printed at the end of the command."""
        self.omitted = 0 if limit is None else max(0, len(items) - limit)
        return items[:limit]

    def print_screen(self, screen: Screen, result: ScreenResult, limit: int | None = None) -> None:
        """Print a declared list: problems, a table row or an object for each row, and notes."""
        for problem in result.problems:
            if not self.print_as_json("problem", problem.as_json()):
                print_problem(problem, self.org)
        rows = result.rows if limit is None else self.limit_rows(result.rows, limit)
        if self.as_json:
            for row in rows:
                print_json(screen.kind, screen.to_json(row))
        elif rows and screen.is_table:
            shown = result.list_table_rows(limit)
            columns, cells = screen.to_table(shown)
            widths, styles = [column.width for column in columns], [screen.style(row) for row in shown]
            print_table([column.header or "" for column in columns], cells, widths, styles)
        else:
            self.print_lines(screen, rows)
        if screen.empty and not rows:
            print_notice(screen.empty)
        for note in result.notes:
            (print_warning if note.is_warning else print_notice)(one_line(note.text, 400))
        for error in result.errors:
            print_error(error, self.org)
        if result.errors:
            raise typer.Exit(result.errors[0].exit_status)

    def print_lines(self, screen: Screen, rows: Iterable[Any]) -> None:
        """Print rows one by one, as they come: a line or an object for each."""
        columns = [column for column in screen.columns if column.header is not None]
        for row in rows:
            print_json(screen.kind, screen.to_json(row))
            cells = (column.format(row)[: column.width] for column in columns)
            print_data(style_text("  ".join(filter(None, cells)).rstrip(), screen.style(row)))

    def print_entry(self, entry: OutboxEntry) -> None:
        """Print a new entry: the path, or the whole entry with --json."""
        print_json("entry", entry.as_json())
        print_data(entry.file)

    def print_as_json(self, kind: str, facts: Mapping[str, Any]) -> bool:
        """Print an object if --json was given. Returns True if printed."""
        print_json(kind, facts)
        return self.as_json


AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]


def to_typer_command(function: Callable[..., None]) -> Callable[..., None]:
    """Convert a function to a typer command: replace `CommandContext` with a typer context and append --json."""

    @wraps(function)
    def run_command(*, ctx: typer.Context, as_json: bool, **arguments: Any) -> None:
        first = CommandContext(ctx, as_json=as_json)
        with output_mode(as_json=as_json, quiet=bool(arguments.get("quiet"))):
            try:
                function(first, **arguments)
            finally:
                if first.omitted:
                    print_warning(f"{first.omitted} more; raise --limit to see them", style="dim")

    (first, *remaining), keyword_only = (signature(function, eval_str=True).parameters.values(), Parameter.KEYWORD_ONLY)
    context_parameter = first.replace(name="ctx", annotation=typer.Context)
    json_parameter = Parameter("as_json", keyword_only, default=False, annotation=AsJson)
    parameters = [parameter.replace(kind=keyword_only) for parameter in (context_parameter, *remaining, json_parameter)]
    run_command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return run_command


def with_parameters_of(screen: Screen) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator for a command that takes the parameters of the screen's query in its `**values`."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        typed = signature(command, eval_str=True).parameters.values()
        declared = []
        for parameter, value_type, parts in screen.parameters.values():
            limits = {} if parts.minimum is None else {"min": parts.minimum}
            make_parameter = option if parts.usage.startswith("-") else argument
            typer_parameter = make_parameter(parts.usage, parts.about, **limits)
            annotation: Any = Annotated.__class_getitem__((value_type, typer_parameter))  # type: ignore[attr-defined]
            declared.append(parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=annotation))
        parameters = [parameter for parameter in typed if parameter.kind is not Parameter.VAR_KEYWORD]
        parameters[1:] = [parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in parameters[1:]]
        command.__signature__ = Signature([*parameters, *declared])  # type: ignore[attr-defined]
        return command

    return decorate


def make_screen_command(screen: Screen) -> Callable[..., None]:
    """Return the command of a screen: its options are the parameters of the query, and its help is the docstring."""

    def show(context: CommandContext, limit: Limit = None, **values: Any) -> None:
        context.print_screen(screen, screen.load(context.org, values), limit)

    show.__doc__ = screen.query.__doc__
    return with_parameters_of(screen)(show)


def find_org(ctx: typer.Context) -> Organisation:
    """Return the organisation of -C or LEMMING_ROOT, or the nearest one upwards. Raises `NotAnOrg` without one."""
    root = _get_root_option(ctx)
    if root is not None:
        base = _require_org_folder(Path(root))
    elif (nearest := next(filter(is_org, (Path.cwd(), *Path.cwd().parents)), None)) is not None:
        base = nearest
    else:
        hint = "create one with `lemming init DIR`, or name one with `lemming -C DIR ...` or LEMMING_ROOT"
        raise NotAnOrg("no organisation in this folder or above it", where=str(Path.cwd()), hint=hint)
    if isinstance(ctx.obj, CommandSession):
        ctx.obj.base = base
    require_known_format(base)
    org = Organisation(base)
    options = org.get_cache(BuildOptions)
    options.show_progress, options.uses_all_cores = partial(show_progress_bar, "reading"), True
    return org


def _get_root_option(ctx: typer.Context) -> str | None:
    return ctx.obj.root if isinstance(ctx.obj, CommandSession) else None


def is_org(folder: Path) -> bool:
    """Return True if a folder holds an organisation: `agents/`, and `tick.json` or `config/`."""
    return (folder / "agents").is_dir() and ((folder / "tick.json").exists() or (folder / "config").is_dir())


def find_agent(base: OrgPath, name: str) -> Agent:
    """Return an agent. Raises `UsageError` for an unknown name, `ConfigError` for a broken resume."""
    require_agent_folder(base, name)
    return load_agent(base, name)


def _require_org_folder(folder: Path) -> Path:
    """Return the organisation at or above a folder. Raises `NotAnOrg` if there is none."""
    base = folder.expanduser().absolute()
    if base.exists() and not base.is_dir():
        raise NotAnOrg("not a folder", where=str(base), hint="name the organisation's folder")
    if not base.is_dir():
        hint = f"correct the name, or create an organisation there with `lemming init {folder}`"
        raise NotAnOrg("the folder does not exist", where=str(base), hint=hint)
    if not (base / "agents").is_dir():
        if parent_org := next(filter(is_org, base.parents), None):
            return parent_org
        hint = f"create an organisation there with `lemming init {folder}`"
        raise NotAnOrg("the folder has no agents/ folder", where=str(base), hint=hint)
    return base


def get_new_agent_path(name: str) -> str:
    """Return `agents/<name>`. Raises `UsageError` for a name unavailable to a new agent."""
    if name_error := paths.new_agent_name_error(name):
        raise UsageError(name_error, hint="choose another name")
    return paths.agent_folder(name)


class AgentFallbackGroup(TyperGroup):
    """Command group in which an agent's name alone stands for the command `show`, or else `list`, on this agent."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the name, the command and the remaining words. Raises `UsageError` with the nearest name."""
        if args[0] not in self.commands and not ctx.resilient_parsing:
            folders = list_agent_folders(find_org(ctx))
            if args[0] not in folders:
                hint = did_you_mean(args[0], [*self.commands, *folders]) or f"{ctx.command_path} --help"
                raise UsageError(f'there is no command or agent "{args[0]}"', hint=hint)
            args = ["show" if "show" in self.commands else "list", *args]
        return super().resolve_command(ctx, args)


class CommandGroup(typer.Typer):
    """A group of commands, filled by a module."""

    def subcommand(self, name: str, **typer_options: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
        """Return a decorator for registering a function as a command; the function stays unchanged."""

        def register(function: Callable[..., None]) -> Callable[..., None]:
            self.command(name, **typer_options)(to_typer_command(function))
            return function

        return register

    def add_screen(self, name: str, screen: Screen) -> None:
        """Register the command of a screen."""
        self.subcommand(name)(make_screen_command(screen))


def make_command_group(
    help: str, *, cls: type[TyperGroup] = TyperGroup, default: Callable[[CommandContext], None] | None = None
) -> CommandGroup:
    """Return an empty group of commands. Without a subcommand, the group prints help or runs `default`."""
    group = CommandGroup(cls=cls, rich_markup_mode=None, add_completion=False)

    def print_help(ctx: typer.Context) -> None:
        if ctx.invoked_subcommand is None:
            print_text(ctx.get_help())

    def run_default(ctx: typer.Context, as_json: AsJson = False) -> None:
        if default and ctx.invoked_subcommand is None:
            with output_mode(as_json=as_json):
                default(CommandContext(ctx, as_json=as_json))

    group.callback(help=help, invoke_without_command=True)(run_default if default else print_help)
    return group


def complete_agent_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return valid agent names for shell completion: some shells would execute characters in other folder names."""
    try:
        base = find_org(ctx)
    except (NotAnOrg, ConfigError):
        return []
    return [name for name in list_agent_folders(base) if name.startswith(incomplete) and paths.AGENT_NAME.match(name)]


def option(usage: str, help: str, **typer_options: Any) -> Any:
    """Return an option; `usage` holds names and metavar, as in the help. The shell completes an AGENT or a PERSON."""
    parts = usage.split(" ")
    names = [part for part in parts if part.startswith("-")]
    return _make_parameter(typer.Option, names, " ".join(parts[len(names) :]), help, typer_options)


def argument(metavar: str, help: str, **typer_options: Any) -> Any:
    """Return an argument; `metavar` is the name in the help, other parameters are as for `option`."""
    return _make_parameter(typer.Argument, [], metavar, help, typer_options)


def _make_parameter(make: Any, names: list[str], metavar: str, help: str, typer_options: dict[str, Any]) -> Any:
    if is_agent_metavar(metavar):
        typer_options["autocompletion"] = complete_agent_names
    return make(*names, metavar=metavar or None, help=help, **typer_options)


def parse_seconds(text: str) -> float:
    """Parse a duration and return seconds; a plain number means seconds.

    >>> [parse_seconds(text) for text in ("90", "2.5s", "10m", "2h", "1d")]
    [90.0, 2.5, 600.0, 7200.0, 86400.0]
    """
    try:
        is_number = text.strip().replace(".", "", 1).isdecimal()
        return float(text) if is_number else parse_duration(text).total_seconds()
    except UsageError as error:
        raise ValueError(f'expected seconds or a duration such as 90s, 10m, 2h or 1d, got "{text}"') from error


def parse_ticks_or_duration(text: str) -> int | str:
    """Parse a number of ticks, or check a duration and return the text.

    >>> parse_ticks_or_duration("20"), parse_ticks_or_duration("2h")
    (20, '2h')
    """
    if text.strip().isdecimal():
        return to_int(text.strip())
    try:
        parse_duration(text)
    except UsageError as error:
        raise ValueError(f"{error.message}: write a number of ticks, or {DURATIONS}") from error
    return text


AgentName = Annotated[str, argument("AGENT", "Name of the agent.")]
AnyAgentName = Annotated[str | None, argument("AGENT", "Name of an agent; default: all agents.")]
RequestId = Annotated[str, argument("ID", "Request id, a prefix of it, or AUTHOR/TICK_ID.")]
AsPerson = Annotated[str | None, option("--as PERSON", "The person you act as; required when there are several.")]
Batch = Annotated[bool, option("--batch", "Use batch APIs for model calls: half the price, results within a day.")]
Apply = Annotated[bool, option("--yes -y", "Apply the changes; without it, only list them.")]
DryRun = Annotated[bool, option("--dry-run", "Show what would be written, and write nothing.")]
Settings = Annotated[
    list[str] | None,
    option("--set FILE:POINTER=VALUE", "Override one value of a JSON file (JSON or plain text). Repeatable."),
]
BudgetUsd = Annotated[float | None, option("--budget USD", "Stop before a call could exceed this amount.", min=0)]
SideEffects = Annotated[
    bool, option("--allow-side-effects", "Also run tool calls with outside effects that have no recorded result.")
]
Watch = Annotated[bool, option("--stream", "Stream model output as it arrives.")]
Trust = Annotated[bool, option("--trust", "Grant, for this run only, the permissions that `lemming trust` lists.")]
Quiet = Annotated[bool, option("-q --quiet", "Print errors only.")]
Limit = Annotated[int | None, option("--limit N", "Show at most N rows and print how many were omitted.", min=1)]
Newest = Annotated[
    int | None, option("--newest N", "Check only the newest N journals and entries of each outbox.", min=1)
]


def parse_json_object(text: str, parameter_name: str, example: str) -> dict[str, Any]:
    """Parse a JSON object. Raises `UsageError` naming the option or argument `parameter_name`."""
    hint = f"write '{example}', for example"
    try:
        value = parse(text)
    except JsonProblem as error:
        raise UsageError(f"{parameter_name} is not JSON: {error.message}", hint=hint) from error
    if not isinstance(value, dict):
        raise UsageError(f"{parameter_name} must be a JSON object", hint=hint)
    return value


def join_text_argument(arguments: Iterable[str] | None) -> str:
    """Join words to a text; for "-" alone, read standard input."""
    text = " ".join(arguments or ())
    return sys.stdin.read().rstrip("\n") if text == "-" else text
