"""Whether what a case expects has come: one function for each kind of expectation, over a run's files."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from lemming.capabilities.conditions import when
from lemming.capabilities.conditions.expressions import expression
from lemming.capabilities.judges.judge import Judge, question, verdict_in
from lemming.capabilities.judges.settings import judge_named
from lemming.capabilities.requests.now import requests_now
from lemming.evals.run import Ran
from lemming.facts.cases import (
    AnswerWanted,
    CallWanted,
    CommandWanted,
    CostWanted,
    EntryWanted,
    Expectation,
    FileWanted,
    FindingWanted,
    JudgeWanted,
)
from lemming.facts.findings.rules import findings_of
from lemming.kernel.agents import survey_agents
from lemming.kernel.base.errors import ContractError, ProviderError, UsageError
from lemming.kernel.base.jsontext import JsonProblem, compact, nearest, parse
from lemming.kernel.files import fs
from lemming.kernel.mail.answers import answer_in
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.models import ModelEntry
from lemming.kernel.providers import Request, require_reply
from lemming.kernel.turn.verdict import VERDICT_SCHEMA
from lemming.service.run_program import run_command

FILE_LIMIT_BYTES = 64 << 20
NAMED = 3


@dataclass(frozen=True)
class CheckResult:
    """Whether an expectation is met; what was found instead, and the files of the copy that show it."""

    holds: bool
    said: str = ""
    evidence: Sequence[str] = ()


QUOTED_CHARS = 120
_WORD = re.compile(r"[^\W_]+")


def verdict_on(expectation: Expectation, ran: Ran) -> CheckResult:
    """Return whether an expectation of a sound case is met. Raises as `judge` does."""
    kind = expectation.kind
    return _CHECKS[kind](getattr(expectation, kind), ran)


# --- entries ----------------------------------------------------------------------------------


def entries_like(wanted: EntryWanted, ran: Ran) -> list[OutboxEntry]:
    """Return the entries of the case that are as wanted, in their order."""
    return [entry for entry in ran.entries if not _unlike(entry, wanted, ran)]


def _unlike(entry: OutboxEntry, wanted: EntryWanted, ran: Ran) -> list[str]:
    """Return in which ways an entry is not the one that is wanted."""
    late = wanted.within_ticks is not None and entry.tick >= ran.first + wanted.within_ticks
    ways = {
        "author": wanted.author not in ("", entry.agent),
        "kind": wanted.kind not in (None, entry.kind),
        "to": bool(wanted.to) and wanted.to.lower() not in entry.targets,
        "within_ticks": late,
        "matches": bool(wanted.matches) and not expression(wanted.matches).finds(_text_of(entry)),
        "when": wanted.when is not None and not when.holds(wanted.when, entry.as_json()),
    }
    return [name for name, is_so in ways.items() if is_so]


def _text_of(entry: OutboxEntry) -> str:
    text = entry.payload.get("text")
    return text if isinstance(text, str) else compact(entry.payload).decode()


def _entry(wanted: EntryWanted, ran: Ran) -> CheckResult:
    found = entries_like(wanted, ran)
    if len(found) >= wanted.at_least:
        return CheckResult(True)
    expected = f"expected {_in_words(wanted)}"
    number = f"{len(found)} of {wanted.at_least} such entries" if wanted.at_least > 1 else "no such entry"
    others = [it for it in ran.entries if it not in found]
    if not others:
        came = "no others were" if found else "nothing was"
        return CheckResult(False, f"{expected}; {number}: {came} written")
    entry = min(others, key=lambda it: _distance(it, wanted, ran))
    came = f"{number} among {len(others)}; the nearest is {entry.file}: {quoted_line(_text_of(entry))}"
    return CheckResult(
        False, f"{expected}; {came}, other in: {', '.join(_unlike(entry, wanted, ran))}", [entry.file]
    )


def _in_words(wanted: EntryWanted) -> str:
    """Return what entry is wanted, in words."""
    parts = [f"a {wanted.kind}" if wanted.kind else "an entry"]
    parts += [f"of {wanted.author}"] if wanted.author else []
    parts += [f"to {wanted.to}"] if wanted.to else []
    parts += [f"within {wanted.within_ticks} ticks"] if wanted.within_ticks is not None else []
    parts += [f'that matches "{wanted.matches}"'] if wanted.matches else []
    parts += ["for which the condition holds"] if wanted.when is not None else []
    return " ".join(parts)


def _distance(entry: OutboxEntry, wanted: EntryWanted, ran: Ran) -> tuple[int, int, int, str]:
    """Return how far an entry is from what is wanted: by its ways, then by the words that it lacks."""
    said = {*_WORD.findall(_text_of(entry).casefold())}
    lacks = len({*_WORD.findall(wanted.matches.casefold())} - said)
    return len(_unlike(entry, wanted, ran)), lacks, -entry.tick, entry.id


def quoted_line(text: str) -> str:
    """Return a text on one line, in quotes, cut where it is long."""
    line = " ".join(text.split())
    return f'"{line if len(line) <= QUOTED_CHARS else line[: QUOTED_CHARS - 1] + "…"}"'


def _no_entry(wanted: EntryWanted, ran: Ran) -> CheckResult:
    files = [entry.file for entry in entries_like(wanted, ran)]
    return CheckResult(len(files) < wanted.at_least, f"there is {_few(files)}", files[:NAMED])


# --- files, calls, cost, findings -----------------------------------------------------------------


def _file(wanted: FileWanted, ran: Ran) -> CheckResult:
    try:
        raw = fs.read_bytes(ran.org.base / wanted.path, FILE_LIMIT_BYTES)
    except FileNotFoundError:
        return CheckResult(not wanted.exists, "it is not there")
    except OSError as error:
        return CheckResult(False, f"it cannot be read: {error.strerror}")
    if not wanted.exists:
        return CheckResult(False, "it is there", [wanted.path])
    if wanted.matches and not expression(wanted.matches).finds(raw.decode("utf-8", "replace")):
        return CheckResult(False, f"its text does not match {wanted.matches}", [wanted.path])
    if wanted.when is None:
        return CheckResult(True)
    try:
        value = parse(raw, limit_bytes=FILE_LIMIT_BYTES, allow_bom=True)
    except JsonProblem as error:
        return CheckResult(False, f"it is not JSON: {error}", [wanted.path])
    return CheckResult(when.holds(wanted.when, value), "the condition does not hold", [wanted.path])


def _tool_called(wanted: CallWanted, ran: Ran) -> CheckResult:
    found = [
        (turn, use)
        for turn in ran.turns
        for use in turn.tools
        if use.tool == wanted.tool
        and wanted.agent in ("", turn.agent)
        and wanted.success in (None, use.success)
        and (
            wanted.when is None
            or when.holds(wanted.when, {"agent": turn.agent, "tick": turn.tick, **vars(use)})
        )
    ]
    files = [entry.file for turn, _ in found for entry in turn.entries]
    calls = f"{len(found)} such calls of {wanted.tool}" + (f": {_shown(found[-1][1].args)}" if found else "")
    return CheckResult(_is_within(len(found), wanted.at_least, wanted.at_most), calls, files[-NAMED:])


def _cost(wanted: CostWanted, ran: Ran) -> CheckResult:
    totals, over = ran.totals, []
    for key, most in (
        ("cost_usd", wanted.at_most_usd),
        ("credits", wanted.at_most_credits),
        ("calls", wanted.at_most_calls),
    ):
        if most is not None and (totals[key] is None or totals[key] > most):
            over.append(
                f"{key} is {'unknown' if totals[key] is None else totals[key]}, at most {most:g} is wanted"
            )
    if wanted.when is not None and not when.holds(wanted.when, totals):
        over.append(f"the condition does not hold for {compact(totals).decode()}")
    return CheckResult(not over, "; ".join(over))


def _findings(wanted: FindingWanted, ran: Ran) -> CheckResult:
    found = [
        finding
        for finding in findings_of(ran.org, first=ran.first, last=ran.last)
        if wanted.kind in (None, finding.kind)
        and (not wanted.agent or wanted.agent in finding.agents)
        and (wanted.when is None or when.holds(wanted.when, finding.as_json()))
    ]
    most = wanted.at_most if wanted.at_most is not None or wanted.at_least else 0
    said = _few([f"{finding.kind}: {finding.message}" for finding in found]) or "there are none"
    return CheckResult(_is_within(len(found), wanted.at_least, most), said)


# --- the answer, programs, judges ----------------------------------------------------------------


def _answer(wanted: AnswerWanted, ran: Ran) -> CheckResult:
    request = requests_now(ran.org).requests.by_identity[ran.request]
    files = [entry.file for entry in request.answers][-NAMED:]
    if request.end != wanted.end:
        by = " and ".join(request.holders)
        said = f"it ended as {request.end}" if request.end else f"it is still open; {by} is to answer"
        return CheckResult(False, said, files)
    answer: Any = answer_in(request.answers[-1].payload, request.schema) if request.answers else None
    text = answer if isinstance(answer, str) else compact(answer).decode()
    if wanted.matches and not expression(wanted.matches).finds(text):
        return CheckResult(False, f"the answer is {_shown(answer)}", files)
    if wanted.when is not None and not when.holds(wanted.when, answer):
        return CheckResult(False, f"the condition does not hold for {_shown(answer)}", files)
    return CheckResult(True)


def _command(wanted: CommandWanted, ran: Ran) -> CheckResult:
    said = run_command(
        wanted.run,
        given=b"",
        variables={"LEMMING_ROOT": str(ran.org)},
        cwd=ran.org.base,
        limit_s=wanted.timeout_s,
        once_started=lambda: None,
    )
    return CheckResult(not said, said)


def _judge(wanted: JudgeWanted, ran: Ran) -> CheckResult:
    shown = entries_like(wanted.entry, ran) if wanted.entry else []
    files = [entry.file for entry in shown] or [wanted.file]
    if wanted.entry and not shown:
        return CheckResult(False, "there is nothing to judge: no such entry")
    try:
        texts = [_text_of(entry) for entry in shown] or [_read(ran, wanted.file)]
    except OSError as error:
        return CheckResult(False, f"there is nothing to judge: {wanted.file}: {error.strerror}")
    passes, reason = judge(wanted, "\n\n".join(texts), ran)
    return CheckResult(passes, reason, files[-NAMED:])


def _read(ran: Ran, file: str) -> str:
    return fs.read_bytes(ran.org.base / file, FILE_LIMIT_BYTES).decode("utf-8", "replace")


# --- words ------------------------------------------------------------------------------------


def _is_within(count: int, least: int, most: int | None) -> bool:
    return least <= count and (most is None or count <= most)


def _few(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - NAMED} more" if len(texts) > NAMED else ""
    return f"{', '.join(texts[:NAMED])}{more}"


def _shown(value: Any) -> str:
    text = compact(value).decode()
    return text if len(text) <= 200 else f"{text[:199]}…"


_CHECKS: dict[str, Callable[[Any, Ran], CheckResult]] = {
    "entry": _entry,
    "no_entry": _no_entry,
    "file": _file,
    "tool_called": _tool_called,
    "answer": _answer,
    "cost": _cost,
    "findings": _findings,
    "command": _command,
    "judge": _judge,
}


# --- judges --------------------------------------------------------------------------------------


def judge(wanted: JudgeWanted, draft: str, ran: Ran) -> tuple[bool, str]:
    """Return whether a judge passes a text, and why not. No verdict is none that passes.

    Raises `NoAnswer` and `OverBudget`, and `UsageError` where there is no such judge.
    """
    runtime = ran.runtime
    assert runtime.answering
    key, entry, instructions = _who(wanted, ran)
    judging = Judge(
        by=str(judge_named(wanted.by)), model=key, instructions=instructions, policy=wanted.rubric
    )
    request = Request(
        model_name=entry.model,
        messages=question(judging, shown="", results="", draft=draft),
        temperature=entry.temperature,
        schema=VERDICT_SCHEMA,
        max_output_tokens=entry.max_output_tokens,
        deadline_s=entry.deadline_s,
        agent="judge",
        tick=ran.last,
    )
    try:
        reply = runtime.answering.judge(entry, request, partial(runtime.complete_live, entry))
        require_reply(reply.finish, reply.text)
        return verdict_in(reply.text)
    except (ContractError, ProviderError) as error:
        return False, f"no verdict: {error}"


def _who(wanted: JudgeWanted, ran: Ran) -> tuple[str, ModelEntry, str]:
    """Return the model key of a judge, its line, and the judge's instructions if it is an agent."""
    named, agents = judge_named(wanted.by), survey_agents(ran.org).agents
    models = ran.runtime.load_config().models
    is_agent = named.kind != "model" and named.name in agents
    key = agents[named.name].model.key if is_agent else named.name
    if key not in models or (named.kind == "agent" and not is_agent):
        known = [*(agents if named.kind != "model" else ()), *(models if named.kind != "agent" else ())]
        hint = nearest(named.name, known) or f"there are: {', '.join(known)}"
        raise UsageError(f'there is no {named.kind or "agent and no model key"} "{named.name}"', hint=hint)
    return key, models[key], agents[named.name].instructions if is_agent else ""
