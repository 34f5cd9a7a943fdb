"""Parameters that several commands share, and what the shell completes for them."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from lemming.agents import agent_folders
from lemming.base.errors import ConfigError, NotAnOrg, UsageError
from lemming.base.jsontext import nearest
from lemming.base.paths import AGENT_NAME
from lemming.base.times.spoken import DURATIONS, parse_duration
from lemming.commands.org import find_org
from lemming.commands.screen import show_text


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


def noun(about: str, *, cls: type[TyperGroup] = TyperGroup) -> typer.Typer:
    """Return an empty group of commands, for a module to fill. Alone it shows its help."""
    group = typer.Typer(cls=cls, rich_markup_mode=None, add_completion=False)

    @group.callback(help=about, invoke_without_command=True)
    def show_help(ctx: typer.Context) -> None:
        if ctx.invoked_subcommand is None:
            show_text(ctx.get_help())

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
        return int(text)
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
Trust = Annotated[
    bool, option("--trust", "Agree, for this run, to what it does outside its folder: `lemming trust`.")
]
AsJson = Annotated[bool, option("--json", "Print JSON, one object a line.")]
Quiet = Annotated[bool, option("-q --quiet", "Say nothing unless something goes wrong.")]
Newest = Annotated[
    int | None,
    option("--newest N", "Look at no more than the newest N journals, and N entries of each outbox.", min=1),
]
