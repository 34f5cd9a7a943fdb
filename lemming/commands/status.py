"""`lemming status`: where the organisation stands."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from lemming.agents import Agent, Survey, survey_agents
from lemming.clock import SystemClock
from lemming.commands.options import AsJson, duration
from lemming.commands.org import (
    describe_engine,
    find_org,
    has_been_interrupted,
    last_committed_tick,
    running_engine,
)
from lemming.commands.screen import counted, one_line, painted, show, show_json, show_table, tell
from lemming.config import Config, credits_of, load_config
from lemming.errors import LemmingError
from lemming.inspect.health import Trouble, seconds_since_tick, troubles_of
from lemming.journal.file import newest_journals, read_journal
from lemming.journal.ledger import AgentState, read_state
from lemming.journal.records import TickCommitted, progress_of
from lemming.mail.misplaced import misplaced
from lemming.organisation import OrgPath
from lemming.report import Reason, Why
from lemming.schedule import next_due
from lemming.tick.counter import load_tick
from lemming.tick.next_tick import find_next_tick
from lemming.tick.plan import make_plan, said_of_pause


@dataclass(frozen=True)
class Line:
    """One agent's line: the tick it fires next (None: never), how its last turn ended, what it has spent.

    `why`: whether it is to take a turn in the tick that runs next, and why not.
    """

    agent: str
    model: str = ""
    next_tick: int | None = None
    state: AgentState = field(default_factory=AgentState)
    max_credits: float | None = None
    why: Why = "broken"
    problem: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the line as JSON values."""
        state = self.state
        return {
            "agent": self.agent,
            "model_key": self.model,
            "next_tick": self.next_tick,
            "why": self.why,
            "last_tick": state.tick if state.status else None,
            "last_status": state.status or None,
            "turns": state.turns,
            "credits": state.credits,
            "max_credits": self.max_credits,
            "cost_usd": state.cost_usd,
            "problem": self.problem,
        }


def status(
    ctx: typer.Context,
    check: Annotated[
        bool,
        typer.Option("--check", help="End with exit status 1 when something is wrong: for monitors."),
    ] = False,
    max_age: Annotated[
        float | None,
        typer.Option(
            "--max-age",
            parser=duration,
            metavar="DURATION",
            help="With --check: it is wrong, too, when the last tick is older: 90 (seconds), 10m, 2h, 1d.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show where the organisation stands: the tick, who runs it, every agent, and what is wrong.

    Wrong is: an agent that fails, may spend no more or has a broken resume; a backend that is left alone
    after failures; a tick that was interrupted while nobody runs it; a disk without room. With --check this
    ends with exit status 1 then, and with 0 when all is well.

    \b
    Examples:
      lemming status
      lemming status --check --max-age 10m || mail -s "lemmings" me
      lemming status --json | jq '.agents[] | select(.problem != "")'
    """
    base = find_org(ctx)
    tick, config, survey = load_tick(base), load_config(base), survey_agents(base)
    engine, last = running_engine(base), last_committed_tick(base)
    is_interrupted = has_been_interrupted(base, tick)
    progress = progress_of(read_journal(base, tick)) if is_interrupted else {}
    reasons = make_plan(tick, survey, config).reasons
    lines = [_line(base, agent, config, tick, reasons[agent.name]) for agent in survey.agents.values()]
    lines += [Line(name, problem=str(error)) for name, error in survey.broken.items()]
    lines.sort(key=lambda line: line.agent)
    troubles = troubles_of(base, survey)
    if is_interrupted and engine is None:
        text = f"tick {tick} was interrupted and nothing is running"
        troubles.append(Trouble("tick", text, "`lemming run-once` continues it", tick))
    ticks, boot_id = newest_journals(base, 2), SystemClock().boot_id
    if engine is None and (error := find_next_tick(base, tick, ticks, boot_id=boot_id).error):
        fix = "`lemming repair` says which of the two is right, and mends it"
        troubles.append(Trouble("tick", error.message, fix, tick))
    if (age := seconds_since_tick(base)) is not None and max_age is not None and age > max_age:
        troubles.append(Trouble("tick", f"the last tick ended {age:.0f} s ago", "is the engine running?"))
    unseen = list(misplaced(Path(base), [*survey.agents, *survey.broken], tick))
    named = {trouble.about for trouble in troubles}
    troubles += [
        Trouble(line.agent, line.problem, "") for line in lines if line.problem and line.agent not in named
    ]
    if as_json:
        facts = {
            "org": str(base),
            "tick": tick,
            "is_interrupted": is_interrupted,
            **progress,
            "engine": engine,
            "paused": config.org.paused,
            "last_tick": {"tick": last.tick, "totals": last.totals} if last else None,
            "agents": [line.as_json() for line in lines],
            "troubles": [asdict(trouble) for trouble in troubles],
            "misplaced": [problem.as_json() for problem in unseen],
        }
        show_json("status", facts)
        raise typer.Exit(1 if check and troubles else 0)
    show(f"{painted(str(base), 'bold')}")
    show(_where(tick, is_interrupted, engine, progress))
    _show_pauses(survey, config)
    if last:
        show(f"tick {last.tick}: {_totals(last)}")
    show()
    _show_lines(lines, named)
    _tell_troubles(troubles, survey)
    for problem in unseen:
        tell(one_line(str(problem), 400), style="yellow")
    if check:
        show(f"{counted(len(troubles), 'thing')} wrong" if troubles else "all is well")
        raise typer.Exit(1 if troubles else 0)


def _line(base: OrgPath, agent: Agent, config: Config, tick: int, reason: Reason) -> Line:
    problem, state = "", AgentState()
    try:
        state = read_state(base, agent.name)
        config.model(agent.model.key)
    except LemmingError as error:
        problem = str(error)
    return Line(
        agent=agent.name,
        model=agent.model.key,
        next_tick=None if reason.why in ("person", "paused") else next_due(agent.schedule, tick),
        why=reason.why,
        state=state,
        max_credits=credits_of(config, agent.name, agent.credits).max_credits,
        problem=problem,
    )


def _where(tick: int, is_interrupted: bool, engine: dict[str, Any] | None, progress: dict[str, Any]) -> str:
    if engine:
        return f"tick {tick}; running: {describe_engine(engine)}"
    if is_interrupted:
        kept, left = counted(progress["answers_kept"], "answer"), counted(len(progress["turns_left"]), "turn")
        return f"tick {tick} was interrupted: {kept} kept, {left} left; `lemming run-once` continues it"
    return f"tick {tick} is next; nothing is running"


def _show_pauses(survey: Survey, config: Config) -> None:
    """Say who is paused, since when and by whom, and how that ends."""
    if config.org.paused:
        show(
            f"{painted(one_line(said_of_pause(config.org.paused), 400), 'yellow')}; `lemming resume` ends it"
        )
    for name, text in survey.paused.items():
        show(f"{name} is {one_line(said_of_pause(text), 400)}; `lemming resume {name}` ends it")


def _totals(last: TickCommitted) -> str:
    totals = last.totals
    parts = [f"{totals[status]} {status}" for status in ("done", "waiting", "failed") if totals[status]]
    parts += [counted(totals["entries"], "entry", "entries"), counted(totals["credits"], "credit")]
    parts += [f"${totals['cost_usd']:.4f}"] if totals["cost_usd"] is not None else []
    return ", ".join(parts)


def _show_lines(lines: list[Line], in_trouble: set[str]) -> None:
    if not lines:
        show("no agents yet: `lemming agents new NAME` makes one")
        return
    rows = [
        [
            line.agent,
            line.model or "-",
            "-" if line.next_tick is None else str(line.next_tick),
            f"{line.state.status} ({line.state.tick})" if line.state.status else "-",
            str(line.state.turns),
            f"{line.state.used_up:g}" + ("" if line.max_credits is None else f" of {line.max_credits:g}"),
            "PROBLEM"
            if line.agent in in_trouble or line.problem
            else "paused"
            if line.why == "paused"
            else "",
        ]
        for line in lines
    ]
    show_table(["AGENT", "MODEL", "NEXT", "LAST", "TURNS", "CREDITS", ""], rows)


def _tell_troubles(troubles: list[Trouble], survey: Survey) -> None:
    for trouble in troubles:
        tell(f"{painted(trouble.about, 'red', sys.stderr)}: {one_line(trouble.text, 600)}")
        if trouble.fix:
            tell(f"  fix: {one_line(trouble.fix, 400)}")
    if survey.warnings:
        tell(
            f"{counted(len(survey.warnings), 'warning')} about resumes; `lemming validate` shows them",
            style="dim",
        )
