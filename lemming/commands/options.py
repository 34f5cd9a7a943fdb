"""What commands share: which organisation they work on, parameters, and what a person has typed."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer.core import TyperGroup

from lemming.commands.screen import show, show_json, show_list, show_text, tell
from lemming.commands.session import CommandSession
from lemming.kernel.agents import Agent, agent_folders, load_agent, nearest_agent
from lemming.kernel.base.errors import ConfigError, NotAnOrg, UsageError
from lemming.kernel.base.integers import to_int
from lemming.kernel.base.jsontext import JsonProblem, nearest, parse
from lemming.kernel.base.paths import AGENT_NAME, agent_folder, why_no_new_agent
from lemming.kernel.base.times.spoken import DURATIONS, parse_duration
from lemming.kernel.org.format import require_known_format
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.service.under_way import describe_engine as describe_engine
from lemming.service.under_way import has_been_interrupted as has_been_interrupted
from lemming.service.under_way import running_engine as running_engine

if TYPE_CHECKING:
    from lemming.kernel.messages import OutboxEntry

T = TypeVar("T")


class Here:
    """Where a command is typed, and how it answers: the first value of each. `as_json`: it prints objects."""

    def __init__(self, context: typer.Context, *, as_json: bool) -> None:
        self.context, self.as_json, self._left_out = context, as_json, 0

    @cached_property
    def org(self) -> Organisation:
        """The organisation that it works on; see `find_org`."""
        return find_org(self.context)

    @property
    def org_if_any(self) -> Organisation | None:
        """The organisation, or None when there is none and none was asked for."""
        if _root(self.context) is not None:
            return self.org
        try:
            return self.org
        except NotAnOrg:
            return None

    def few(self, found: Sequence[T], limit: int | None) -> Sequence[T]:
        """Return the first of a list, as many as are wanted; the command says at its end what it left out."""
        self._left_out = 0 if limit is None else max(0, len(found) - limit)
        return found[:limit]

    def lists(
        self,
        kind: str,
        found: Sequence[Any],
        columns: Mapping[str, Any],
        limit: int | None = None,
        *,
        nothing: str = "",
    ) -> None:
        """Print the first of these facts, a line or an object each; see `show_list`."""
        show_list(kind, self.few(found, limit), columns, as_json=self.as_json, nothing=nothing)

    def shows_entry(self, entry: OutboxEntry) -> None:
        """Print an entry that was written: where it is, or all of it."""
        if not self.shows("entry", entry.as_json()):
            show(entry.file)

    def tell_what_was_left_out(self) -> None:
        """Say how many of a list were not shown."""
        if self._left_out:
            tell(f"{self._left_out} more with a larger --limit", style="dim")

    def shows(self, kind: str, plain: Mapping[str, Any]) -> bool:
        """Print an object where objects are wanted; return whether they are."""
        if self.as_json:
            show_json(kind, plain)
        return self.as_json


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")]


def verb(function: Callable[..., None]) -> Callable[..., None]:
    """Return a command as typer takes it: a context in place of `Here`, and --json behind its parameters."""

    @wraps(function)
    def run(*, ctx: typer.Context, as_json: bool, **given: Any) -> None:
        here = Here(ctx, as_json=as_json)
        try:
            function(here, **given)
        finally:
            here.tell_what_was_left_out()

    (here, *others), is_typed = signature(function, eval_str=True).parameters.values(), Parameter.KEYWORD_ONLY
    context = here.replace(name="ctx", annotation=typer.Context)
    json = Parameter("as_json", is_typed, default=False, annotation=AsJson)
    taken = [it.replace(kind=is_typed) for it in (context, *others, json)]
    run.__signature__ = Signature(taken)  # type: ignore[attr-defined]
    return run


def find_org(ctx: typer.Context) -> Organisation:
    """Return the organisation given with -C or LEMMING_ROOT, else the nearest from here upwards.

    Raises `NotAnOrg` when there is none.
    """
    given = _root(ctx)
    base = _given_org(Path(given)) if given is not None else _nearest_org(Path.cwd())
    if isinstance(ctx.obj, CommandSession):
        ctx.obj.base = base
    require_known_format(base)
    return Organisation(base)


def _root(ctx: typer.Context) -> str | None:
    return ctx.obj.root if isinstance(ctx.obj, CommandSession) else None


def is_org(folder: Path) -> bool:
    """Return whether a folder holds an organisation: `agents/`, and `tick.json` or `config/`."""
    return (folder / "agents").is_dir() and ((folder / "tick.json").exists() or (folder / "config").is_dir())


def find_agent(base: OrgPath, name: str) -> Agent:
    """Return an agent; raise `UsageError` for a name that is none, `ConfigError` for a broken resume."""
    require_folder(base, name)
    return load_agent(base, name)


def require_folder(base: OrgPath, name: str, *, words: tuple[str, ...] = ()) -> None:
    """Raise `UsageError` with the nearest name unless there is a folder of this name below `agents/`.

    `words` are what may stand in the name's place: they are suggested too.
    """
    known = agent_folders(base)
    if name not in known:
        hint = nearest(name, words) or nearest_agent(name, known)
        raise UsageError(f'there is no agent "{name}"', hint=hint)


def _given_org(folder: Path) -> Path:
    base = folder.expanduser().absolute()
    if base.exists() and not base.is_dir():
        raise NotAnOrg("is no folder", where=str(base), hint="name the organisation's folder")
    if not base.is_dir():
        hint = f"correct the name, or make an organisation there with `lemming init {folder}`"
        raise NotAnOrg("there is no such folder", where=str(base), hint=hint)
    if not (base / "agents").is_dir():
        if above := next(filter(is_org, base.parents), None):
            return above
        hint = f"make one there with `lemming init {folder}`"
        raise NotAnOrg("there is no agents/ folder here", where=str(base), hint=hint)
    return base


def _nearest_org(start: Path) -> Path:
    for folder in (start, *start.parents):
        if is_org(folder):
            return folder
    hint = "make one with `lemming init DIR`, or name one with `lemming -C DIR ...` or LEMMING_ROOT"
    raise NotAnOrg("no organisation in this folder or above it", where=str(start), hint=hint)


def path_of_agent(name: str) -> str:
    """Return `agents/<name>`; raise `UsageError` for a name that no agent can have."""
    try:
        return agent_folder(name)
    except ValueError as error:
        raise UsageError(str(error)) from error


def path_of_new_agent(name: str) -> str:
    """Return `agents/<name>`; raise `UsageError` for a name that no new agent can have."""
    if why := why_no_new_agent(name):
        raise UsageError(why, hint="take another name")
    return agent_folder(name)


class OrAnAgent(TyperGroup):
    """The commands of a noun, or an agent's name alone, which stands for looking at that agent."""

    look = "show"

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the name, the command and the other words; raise `UsageError` with the nearest name."""
        if args[0] not in self.commands and not ctx.resilient_parsing:
            known = agent_folders(find_org(ctx))
            if args[0] not in known:
                hint = nearest(args[0], [*self.commands, *known]) or f"{ctx.command_path} --help"
                raise UsageError(f'there is no command and no agent "{args[0]}"', hint=hint)
            args = [self.look, *args]
        return super().resolve_command(ctx, args)


class ListOfAnAgent(OrAnAgent):
    """The same, where looking at an agent is listing what it has."""

    look = "list"


class Noun(typer.Typer):
    """A group of commands, which a module fills."""

    def verb(self, name: str, **how: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
        """Return what makes a function a command of this name; the function stays as it is."""

        def add(function: Callable[..., None]) -> Callable[..., None]:
            self.command(name, **how)(verb(function))
            return function

        return add


def noun(
    about: str, *, cls: type[TyperGroup] = TyperGroup, alone: Callable[[Here], None] | None = None
) -> Noun:
    """Return an empty group of commands. Alone it shows its help, or does what `alone` does."""
    group = Noun(cls=cls, rich_markup_mode=None, add_completion=False)

    def show_help(ctx: typer.Context) -> None:
        if ctx.invoked_subcommand is None:
            show_text(ctx.get_help())

    def do_it(ctx: typer.Context, as_json: AsJson = False) -> None:
        if alone and ctx.invoked_subcommand is None:
            alone(Here(ctx, as_json=as_json))

    group.callback(help=about, invoke_without_command=True)(do_it if alone else show_help)
    return group


def agent_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the agents whose names begin as typed, for the shell.

    Only names that an agent may have: some shells would run what stands in others.
    """
    try:
        base = find_org(ctx)
    except (NotAnOrg, ConfigError):
        return []
    return [name for name in agent_folders(base) if name.startswith(incomplete) and AGENT_NAME.match(name)]


def option(usage: str, help: str, *, of_agents: bool = False, **more: Any) -> Any:
    """Return an option as its help shows it: its names, and what stands behind them, if anything does.

    `of_agents`: the shell completes the names of agents. `more`: as `typer.Option` has it.
    """
    words = usage.split(" ")
    names = [word for word in words if word.startswith("-")]
    return _parameter(typer.Option, names, " ".join(words[len(names) :]), help, of_agents, more)


def argument(metavar: str, help: str, *, of_agents: bool = False, **more: Any) -> Any:
    """Return an argument by what stands for it in the help; the others as in `option`."""
    return _parameter(typer.Argument, [], metavar, help, of_agents, more)


def _parameter(
    make: Any, names: list[str], metavar: str, help: str, of_agents: bool, more: dict[str, Any]
) -> Any:
    more |= {"autocompletion": agent_names} if of_agents else {}
    return make(*names, metavar=metavar or None, help=help, **more)


def duration(text: str) -> float:
    """Return how many seconds a person has written; a number alone is seconds.

    >>> [duration(text) for text in ("90", "2.5s", "10m", "2h", "1d")]
    [90.0, 2.5, 600.0, 7200.0, 86400.0]
    """
    amount = _DURATION.fullmatch(text.strip())
    if amount is None:
        raise ValueError(f'"{text}" is no duration: write seconds, or 90s, 10m, 2h, 1d')
    return float(amount["number"]) * _SECONDS_IN[amount["unit"]]


def ticks_or_time(text: str) -> int | str:
    """Return how long something is waited for: so many ticks, or a time as it was written.

    >>> ticks_or_time("20"), ticks_or_time("2h")
    (20, '2h')
    """
    if text.strip().isdecimal():
        return to_int(text.strip())
    try:
        parse_duration(text)
    except UsageError as error:
        raise ValueError(f"{error.message}: write a number of ticks, or {DURATIONS}") from error
    return text


_SECONDS_IN = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(?P<number>[0-9]{1,9}(\.[0-9]{1,9})?) ?(?P<unit>[smhd]?)", re.ASCII)

AgentName = Annotated[str, argument("AGENT", "An agent's name.", of_agents=True)]
AnyAgentName = Annotated[str | None, argument("AGENT", "An agent's name; all without one.", of_agents=True)]
RequestId = Annotated[str, argument("ID", "A request's id, the beginning of it, or AUTHOR/TICK_ID.")]
AsPerson = Annotated[
    str | None, option("--as PERSON", "Who you are, where there are several people.", of_agents=True)
]
Batch = Annotated[
    bool,
    option("--batch", "Send model calls through batch APIs: about half the price, answered within a day."),
]
Watch = Annotated[bool, option("--watch", "Show the answers of models as they are written.")]
Trust = Annotated[bool, option("--trust", "Agree, for this run, to what `lemming trust` shows.")]
Quiet = Annotated[bool, option("-q --quiet", "Say nothing unless something goes wrong.")]
Limit = Annotated[int | None, option("--limit N", "Show N at most, and say how many more there are.", min=1)]
Newest = Annotated[
    int | None,
    option("--newest N", "Look at no more than the newest N journals, and N entries of each outbox.", min=1),
]


def object_typed(text: str, what: str, such_as: str) -> dict[str, Any]:
    """Return the JSON object that a text is; raise `UsageError` that names `what` it was given for."""
    try:
        value = parse(text)
    except JsonProblem as error:
        raise UsageError(f"{what} is not JSON: {error.message}", hint=f"such as '{such_as}'") from error
    if not isinstance(value, dict):
        raise UsageError(f"{what} must be a JSON object", hint=f"such as '{such_as}'")
    return value


def text_typed(words: Iterable[str] | None) -> str:
    """Return words as one text; of "-" alone what standard input has."""
    text = " ".join(words or ())
    return sys.stdin.read().rstrip("\n") if text == "-" else text
