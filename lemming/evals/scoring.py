"""Scores of expectations: a function for each kind of expectation, over the files of a run."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from lemming.evals.case_run import CaseRun
from lemming.kernel.agents import survey_agents
from lemming.kernel.base.errors import ContractError, ProviderError, UsageError
from lemming.kernel.base.jsontext import JsonProblem, did_you_mean, dump_compact, parse
from lemming.kernel.files import fs
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.plugins.capability_loader import require_fact
from lemming.kernel.providers import Request, require_usable_finish
from lemming.kernel.turn.descriptions import VERDICT_SCHEMA
from lemming.libraries.conditions import predicates
from lemming.libraries.conditions.regex_search import compile_regex
from lemming.libraries.wording import join_names, shorten_line
from lemming.obligations.answer_fields import parse_answer
from lemming.obligations.org_requests import load_requests
from lemming.operations.alerts import run_command
from lemming.queries.case_format import (
    CommandCheck,
    Expectation,
    ExpectedAnswer,
    ExpectedCall,
    ExpectedCost,
    ExpectedEntry,
    ExpectedFile,
    ExpectedFindings,
    JudgeCheck,
)
from lemming.queries.findings.finding_rules import find_findings

FILE_LIMIT_BYTES = 64 << 20
MAX_LISTED = 3


@dataclass(frozen=True)
class ScoreResult:
    """The score of an expectation: met or not, the observed value, and the evidence files in the copy."""

    is_met: bool
    detail: str = ""
    evidence: Sequence[str] = ()


QUOTED_CHARS, VALUE_CHARS = 120, 200
_WORD = re.compile(r"[^\W_]+")


def score_expectation(expectation: Expectation, case_run: CaseRun) -> ScoreResult:
    """Score an expectation of a valid case. Raises: the errors of `ask_judge`."""
    kind = expectation.kind
    return _SCORERS[kind](getattr(expectation, kind), case_run)


def find_matching_entries(expectation: ExpectedEntry, case_run: CaseRun) -> list[OutboxEntry]:
    """Return the entries of the case that match the expectation, in order."""
    return [entry for entry in case_run.entries if not _find_differences(entry, expectation, case_run)]


def _find_differences(entry: OutboxEntry, expectation: ExpectedEntry, case_run: CaseRun) -> list[str]:
    is_late = expectation.within_ticks is not None and entry.tick >= case_run.first + expectation.within_ticks
    mismatches = {
        "author": expectation.author not in ("", entry.agent),
        "kind": expectation.kind not in (None, entry.kind),
        "to": bool(expectation.to) and expectation.to.lower() not in entry.targets,
        "within_ticks": is_late,
        "matches": bool(expectation.matches) and not compile_regex(expectation.matches).search(_entry_text(entry)),
        "when": expectation.when is not None and not predicates.evaluate(expectation.when, entry.as_json()),
    }
    return [name for name, is_mismatch in mismatches.items() if is_mismatch]


def _entry_text(entry: OutboxEntry) -> str:
    text = entry.payload.get("text")
    return text if isinstance(text, str) else dump_compact(entry.payload).decode()


def _score_entry(expectation: ExpectedEntry, case_run: CaseRun) -> ScoreResult:
    matches = find_matching_entries(expectation, case_run)
    if len(matches) >= expectation.at_least:
        return ScoreResult(True)
    parts = [f"expected a {expectation.kind}" if expectation.kind else "expected an entry"]
    parts += [f"of {expectation.author}"] if expectation.author else []
    parts += [f"to {expectation.to}"] if expectation.to else []
    parts += [f"within {expectation.within_ticks} ticks"] if expectation.within_ticks is not None else []
    parts += [f'that matches "{expectation.matches}"'] if expectation.matches else []
    parts += ["for which the condition holds"] if expectation.when is not None else []
    expected, at_least = " ".join(parts), expectation.at_least
    count = f"{len(matches)} of {at_least} such entries" if at_least > 1 else "no matching entry"
    candidates = [candidate for candidate in case_run.entries if candidate not in matches]
    if not candidates:
        observed = "no others were" if matches else "nothing was"
        return ScoreResult(False, f"{expected}; {count}: {observed} written")

    def rank(candidate: OutboxEntry) -> tuple[int, int, int, str]:  # by unmet criteria, then by missing words
        entry_words = {*_WORD.findall(_entry_text(candidate).casefold())}
        missing_count = len({*_WORD.findall(expectation.matches.casefold())} - entry_words)
        return len(_find_differences(candidate, expectation, case_run)), missing_count, -candidate.tick, candidate.id

    entry = min(candidates, key=rank)
    quoted = shorten_line(_entry_text(entry), QUOTED_CHARS)
    observed = f'{count} among {len(candidates)}; the nearest is {entry.file}: "{quoted}"'
    differences = ", ".join(_find_differences(entry, expectation, case_run))
    return ScoreResult(False, f"{expected}; {observed}, other in: {differences}", [entry.file])


def _score_no_entry(expectation: ExpectedEntry, case_run: CaseRun) -> ScoreResult:
    files = [entry.file for entry in find_matching_entries(expectation, case_run)]
    return ScoreResult(len(files) < expectation.at_least, f"found {join_names(files, MAX_LISTED)}", files[:MAX_LISTED])


def _score_file(expectation: ExpectedFile, case_run: CaseRun) -> ScoreResult:
    try:
        raw = fs.read_bytes(case_run.org.base / expectation.path, FILE_LIMIT_BYTES)
    except FileNotFoundError:
        return ScoreResult(not expectation.exists, "the file does not exist")
    except OSError as error:
        return ScoreResult(False, f"the file cannot be read: {error.strerror}")
    if not expectation.exists:
        return ScoreResult(False, "the file exists", [expectation.path])
    if expectation.matches and not compile_regex(expectation.matches).search(raw.decode("utf-8", "replace")):
        return ScoreResult(False, f"the text does not match {expectation.matches}", [expectation.path])
    if expectation.when is None:
        return ScoreResult(True)
    try:
        value = parse(raw, limit_bytes=FILE_LIMIT_BYTES, allow_bom=True)
    except JsonProblem as error:
        return ScoreResult(False, f"the file must be JSON: {error}", [expectation.path])
    return ScoreResult(predicates.evaluate(expectation.when, value), "the condition does not hold", [expectation.path])


def _score_tool_calls(expectation: ExpectedCall, case_run: CaseRun) -> ScoreResult:
    matches = []
    for turn in (turn for turn in case_run.turns if expectation.agent in ("", turn.agent)):
        for tool_use in turn.tools:
            facts = {"agent": turn.agent, "tick": turn.tick, **vars(tool_use)}
            is_match = tool_use.tool == expectation.tool and expectation.success in (None, tool_use.success)
            if is_match and (expectation.when is None or predicates.evaluate(expectation.when, facts)):
                matches.append((turn, tool_use))
    files = [entry.file for turn, _ in matches for entry in turn.entries]
    last_call = f": {shorten_line(dump_compact(matches[-1][1].args).decode(), VALUE_CHARS)}" if matches else ""
    calls = f"{len(matches)} such calls of {expectation.tool}{last_call}"
    is_in_range = _is_in_range(len(matches), expectation.at_least, expectation.at_most)
    return ScoreResult(is_in_range, calls, files[-MAX_LISTED:])


def _score_cost(cost: ExpectedCost, case_run: CaseRun) -> ScoreResult:
    totals, violations = case_run.totals, []
    limits = {"cost_usd": cost.at_most_usd, "credits": cost.at_most_credits, "calls": cost.at_most_calls}
    for key, limit in limits.items():
        if limit is not None and (totals[key] is None or totals[key] > limit):
            observed = "an unknown value" if totals[key] is None else totals[key]
            violations.append(f"{key} must be at most {limit:g}, got {observed}")
    if cost.when is not None and not predicates.evaluate(cost.when, totals):
        violations.append(f"the condition does not hold for {dump_compact(totals).decode()}")
    return ScoreResult(not violations, "; ".join(violations))


def _score_findings(expectation: ExpectedFindings, case_run: CaseRun) -> ScoreResult:
    findings = [
        finding
        for finding in find_findings(case_run.org, first=case_run.first, last=case_run.last)
        if expectation.kind in (None, finding.kind)
        and (not expectation.agent or expectation.agent in finding.agents)
        and (expectation.when is None or predicates.evaluate(expectation.when, finding.as_json("finding")))
    ]
    max_count = expectation.at_most if expectation.at_most is not None or expectation.at_least else 0
    texts = [f"{finding.kind}: {finding.message}" for finding in findings]
    detail = join_names(texts, MAX_LISTED) or "there are no findings"
    return ScoreResult(_is_in_range(len(findings), expectation.at_least, max_count), detail)


def _score_answer(expectation: ExpectedAnswer, case_run: CaseRun) -> ScoreResult:
    request = load_requests(case_run.org).requests.by_identity[case_run.request]
    files = [entry.file for entry in request.answers][-MAX_LISTED:]
    if request.end != expectation.end:
        assignees = " and ".join(request.assignees)
        detail = f"it ended as {request.end}" if request.end else f"the request is still open; {assignees} must answer"
        return ScoreResult(False, detail, files)
    answer: Any = parse_answer(request.answers[-1].payload, request.schema) if request.answers else None
    text = answer if isinstance(answer, str) else dump_compact(answer).decode()
    quoted = shorten_line(dump_compact(answer).decode(), VALUE_CHARS)
    if expectation.matches and not compile_regex(expectation.matches).search(text):
        return ScoreResult(False, f"the answer is {quoted}", files)
    if expectation.when is not None and not predicates.evaluate(expectation.when, answer):
        return ScoreResult(False, f"the condition does not hold for {quoted}", files)
    return ScoreResult(True)


def _score_command(expectation: CommandCheck, case_run: CaseRun) -> ScoreResult:
    problem = run_command(
        expectation.run,
        stdin=b"",
        variables={"LEMMING_ROOT": str(case_run.org)},
        cwd=case_run.org.base,
        limit_s=expectation.timeout_s,
        on_start=lambda: None,
    )
    return ScoreResult(not problem, problem)


def _score_judge(expectation: JudgeCheck, case_run: CaseRun) -> ScoreResult:
    entries = find_matching_entries(expectation.entry, case_run) if expectation.entry else []
    files = [entry.file for entry in entries] or [expectation.file]
    if expectation.entry and not entries:
        return ScoreResult(False, "nothing to judge: no matching entry")
    try:
        texts = [_entry_text(entry) for entry in entries]
        if not texts:
            raw = fs.read_bytes(case_run.org.base / expectation.file, FILE_LIMIT_BYTES)
            texts = [raw.decode("utf-8", "replace")]
    except OSError as error:
        return ScoreResult(False, f"nothing to judge: {expectation.file}: {error.strerror}")
    is_passed, reason = ask_judge(expectation, "\n\n".join(texts), case_run)
    return ScoreResult(is_passed, reason, files[-MAX_LISTED:])


def _is_in_range(count: int, min_count: int, max_count: int | None) -> bool:
    return min_count <= count and (max_count is None or count <= max_count)


_SCORERS: dict[str, Callable[[Any, CaseRun], ScoreResult]] = {
    "entry": _score_entry,
    "no_entry": _score_no_entry,
    "file": _score_file,
    "tool_called": _score_tool_calls,
    "answer": _score_answer,
    "cost": _score_cost,
    "findings": _score_findings,
    "command": _score_command,
    "judge": _score_judge,
}


def ask_judge(expectation: JudgeCheck, draft: str, case_run: CaseRun) -> tuple[bool, str]:
    """Return the verdict of a judge about a text, and the reason; an unreadable verdict counts as False.

    Raises: NoAnswer and OverBudget; UsageError for an unknown judge.
    """
    runtime, target = case_run.runtime, require_fact("judges.parse_target")(expectation.by)
    assert runtime.answering
    agents, models = survey_agents(case_run.org).agents, runtime.load_config().models
    is_agent = target.kind != "model" and target.name in agents
    key = agents[target.name].model.key if is_agent else target.name
    if key not in models or (target.kind == "agent" and not is_agent):
        candidates = [*(agents if target.kind != "model" else ()), *(models if target.kind != "agent" else ())]
        hint = did_you_mean(target.name, candidates) or f"use one of: {', '.join(candidates)}"
        raise UsageError(f'{target.kind or "agent or model key"} "{target.name}" does not exist', hint=hint)
    entry, instructions = models[key], agents[target.name].instructions if is_agent else ""
    request = Request(
        model_name=entry.model,
        messages=require_fact("judges.rubric_prompt")(
            str(target), instructions=instructions, rubric=expectation.rubric, draft_text=draft
        ),
        temperature=entry.temperature,
        schema=VERDICT_SCHEMA,
        max_output_tokens=entry.max_output_tokens,
        deadline_s=entry.deadline_s,
        agent="judge",
        tick=case_run.last,
    )
    try:
        reply = runtime.answering.answer_judge(entry, request, partial(runtime.complete_live, entry))
        require_usable_finish(reply.finish, reply.text)
        verdict: tuple[bool, str] = require_fact("judges.parse_verdict")(reply.text)
    except (ContractError, ProviderError) as error:
        return False, f"no verdict: {error}"
    return verdict
