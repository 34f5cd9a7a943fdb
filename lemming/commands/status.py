"""`lemming status`: where the organisation stands."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, Any

import typer

from lemming.capabilities.requests.waiting import waiting_text
from lemming.commands.options import Here, describe_engine, duration, option
from lemming.commands.screen import (
    counted,
    in_dollars,
    one_line,
    painted,
    show,
    show_table,
    tell,
    totals_in_words,
)
from lemming.facts.checklist.standing import Trouble
from lemming.facts.pending import pending_text
from lemming.facts.standing import Standing, StatusLine, standing_of
from lemming.kernel.agents import Survey
from lemming.kernel.base.clock import SystemClock, parse_timestamp
from lemming.kernel.base.times.words import until_text
from lemming.kernel.org.config import Config
from lemming.kernel.tick.firing_plan import pause_reason

FACTS_SHOWN = 8


def status(
    here: Here,
    check: Annotated[
        bool, option("--check", "End with exit status 1 when something is wrong: for monitors.")
    ] = False,
    max_age: Annotated[
        float | None,
        option(
            "--max-age DURATION",
            "With --check: it is wrong, too, when the last tick is older: 90 (seconds), 10m, 2h, 1d.",
            parser=duration,
        ),
    ] = None,
    limit: Annotated[
        int | None, option("--limit N", "Show N agents at most, those in trouble first.", min=1)
    ] = None,
) -> None:
    """Show where the organisation stands: the tick, who runs it, every agent, and what is wrong.

    Wrong is: an agent that fails, may spend no more or has a broken resume; a backend that is left alone
    after failures; a tick that was interrupted while nobody runs it; a disk without room. With --check this
    ends with exit status 1 then, and with 0 when all is well.

    \b
    Examples:
      lemming status
      lemming status --limit 20
      lemming status --check --max-age 10m || mail -s "lemmings" me
      lemming status --json | jq '.agents[] | select(.problem != "")'
    """
    base = here.org
    found = standing_of(base, max_age_s=max_age)
    from lemming.facts.findings.rules import count_findings  # with it comes much

    findings = count_findings(base, found.config) if found.last else 0
    if limit is not None:
        in_trouble = found.in_trouble
        lines = sorted(found.lines, key=lambda it: (it.agent not in in_trouble, not pending_text(it.state)))
        found = replace(found, lines=[*here.few(lines, limit)])
    if not here.shows("status", {**found.as_json(), "findings": findings}):
        _show(found, waiting_text(found.waiting), findings)
        if check:
            wrong = f"{counted(len(found.troubles), 'thing')} wrong"
            show(wrong if found.troubles else "all is well")
    raise typer.Exit(1 if check and found.troubles else 0)


def together(facts: Iterable[tuple[str, str]]) -> list[str]:
    """Return facts in words, those of the same text as one that says of whom.

    >>> together([("ada", "is full"), ("bob", "is full"), ("cid", "has room")])
    ['ada, bob: is full', 'cid has room']
    """
    whom: dict[str, list[str]] = {}
    for about, text in facts:
        whom.setdefault(text, []).append(about)
    return [_with_names(names, text).strip() for text, names in whom.items()]


def _with_names(names: list[str], text: str) -> str:
    if len(names) == 1:
        return f"{names[0]} {text}"
    more = f" and {len(names) - FACTS_SHOWN} more" if len(names) > FACTS_SHOWN else ""
    return f"{', '.join(names[:FACTS_SHOWN])}{more}: {text}"


def _show(found: Standing, waits: str, findings: int | None) -> None:
    show(f"{painted(str(found.base), 'bold')}")
    show(_where(found.tick, found.is_interrupted, found.engine, found.progress))
    _show_pauses(found.survey, found.config)
    if found.last:
        show(f"tick {found.last.tick}: {totals_in_words(found.last.totals)}")
    if waits:
        show(painted(one_line(waits, 400), "yellow"))
    for name, facts in found.said.items():
        told = together(facts)
        more = f"; and {len(told) - FACTS_SHOWN} more" if len(told) > FACTS_SHOWN else ""
        shown = "; ".join(told[:FACTS_SHOWN])
        show(f"{one_line(f'{name}: {shown}', 400)}{more}")
    if findings:
        show(painted(f"{counted(findings, 'finding')}; `lemming findings` says which", "yellow"))
    if findings is None:
        show(painted("findings are not counted in journals so large; `lemming findings` looks", "dim"))
    show()
    _show_lines(found.lines, found.in_trouble)
    _tell_troubles(found.troubles, found.survey)
    for problem in found.misplaced:
        tell(one_line(str(problem), 400), style="yellow")


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
        show(f"{painted(one_line(pause_reason(config.org.paused), 400), 'yellow')}; `lemming resume` ends it")
    for name, text in survey.paused.items():
        show(f"{name} is {one_line(pause_reason(text), 400)}; `lemming resume {name}` ends it")


def _next(line: StatusLine) -> str:
    if line.next_at is None:
        return "-" if line.next_tick is None else str(line.next_tick)
    return until_text(parse_timestamp(line.next_at), SystemClock().now())


def _last(line: StatusLine) -> str:
    """Return how the latest turn ended, and in which tick."""
    state = line.state
    how = f", {state.end.replace('_', ' ')}" if state.end not in ("", "waits") else ""
    return f"{state.status}{how} ({state.tick})" if state.status else "-"


def _show_lines(lines: list[StatusLine], in_trouble: set[str]) -> None:
    if not lines:
        show("no agents yet: `lemming agents new NAME` makes one")
        return
    rows = [_row(line, is_in_trouble=line.agent in in_trouble) for line in lines]
    show_table(["AGENT", "MODEL", "NEXT", "LAST", "TURNS", "CREDITS", "COST", ""], rows)


def _row(line: StatusLine, *, is_in_trouble: bool) -> list[str]:
    state, limit = line.state, "" if line.max_credits is None else f" of {line.max_credits:g}"
    if not line.model:  # its resume is broken, which says what it may spend
        limit = " of ?"
    return [
        line.agent,
        line.model or "-",
        _next(line),
        _last(line),
        f"{state.turns}" + (f" ({state.failed} failed)" if state.failed else ""),
        f"{state.used_up:g}{limit}",
        in_dollars(state.cost_usd, calls=state.unpriced_calls, unpriced=state.unpriced_calls),
        _state_text(line, is_in_trouble=is_in_trouble),
    ]


def _state_text(line: StatusLine, *, is_in_trouble: bool) -> str:
    if is_in_trouble or line.problem:
        return "PROBLEM"
    return "paused" if line.why == "paused" else pending_text(line.state)


def _tell_troubles(troubles: list[Trouble], survey: Survey) -> None:
    for trouble in troubles:
        tell(f"{painted(trouble.about, 'red', sys.stderr)}: {one_line(trouble.message, 600)}")
        if trouble.hint:
            tell(f"  fix: {one_line(trouble.hint, 400)}")
    if survey.warnings:
        tell(
            f"{counted(len(survey.warnings), 'warning')} about resumes; `lemming validate` shows them",
            style="dim",
        )
