"""Rules for neglected work: dropped requests, unread entries and unverified answers."""

from __future__ import annotations

from collections.abc import Iterator

from lemming.journal_tools.recorded_tick import TurnRecord
from lemming.kernel.base import paths
from lemming.kernel.base.errors import CorruptState, Problem
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.messages import OutboxEntry, parse_file_names
from lemming.libraries.wording import format_count
from lemming.obligations.request_view import Assignment, RequestView
from lemming.obligations.waiting_items import is_scheduled_later
from lemming.queries.findings.finding_scan import FindingScan, format_evidence, limit_evidence, make_finding, quote_text

UNPASSED_REMARKS = ("unverified: ", "let through: ")
"""Opening of the remarks on an entry sent without having passed: with a tag, or without one."""


def find_dropped_requests(scan: FindingScan) -> Iterator[Problem]:
    """Yield readable requests neglected by the assignee, and requests expired for this reason."""
    if scan.config.org.paused:
        return
    for request in scan.requests:
        for assignment in request.open_assignments:
            if not is_scheduled_later(request) and _is_dropped(scan, request, assignment):
                yield _dropped_finding(scan, request, assignment)
        if request.end == "expired" and not request.has_default and _is_recent(scan, request):
            assignees = tuple(
                assignment.assignee for assignment in request.assignments if scan.takes_turns(assignment.assignee)
            )
            if assignees:
                yield _expired_finding(request, assignees)


def _is_recent(scan: FindingScan, request: RequestView) -> bool:
    return request.end_tick is not None and request.end_tick >= scan.first_tick


def _is_dropped(scan: FindingScan, request: RequestView, assignment: Assignment) -> bool:
    assignee, asker = assignment.assignee, request.asker
    if not scan.takes_turns(assignee) or not scan.agents[assignee].may_read(asker):
        return False  # a person's, or out of reach: others tell of these
    limit = scan.settings.dropped
    schedule = scan.agents[assignee].schedule
    if scan.tick - assignment.since < max(limit, 2 * schedule.run_every_n_ticks):
        return False
    turns = [turn for turn in scan.by_agent.get(assignee, ()) if turn.tick > assignment.since]
    if schedule.cron is not None and len(turns) < 2:
        return False
    if any(_is_child_open(scan, child) for child in request.children):
        return False
    if not scan.is_complete_from_tick(scan.tick - limit):
        return False  # it may have been worked on in ticks that were not read
    recent = [turn for turn in turns if turn.tick >= scan.tick - limit]
    is_served = any(turn.report and turn.report.request == request.identity for turn in recent)
    entries = (entry for turn in turns for entry in turn.entries)
    return not is_served and not any(
        asker in written_entry.targets or written_entry.kind == "status" for written_entry in entries
    )


def _is_child_open(scan: FindingScan, child: str) -> bool:
    request = scan.requests.by_identity.get(child)
    return request is not None and request.is_open


def _dropped_finding(scan: FindingScan, request: RequestView, assignment: Assignment) -> Problem:
    assignee = assignment.assignee
    age = format_count(scan.tick - assignment.since, "tick")
    paused = f"; {assignee} is paused" if scan.agents[assignee].paused else ""
    return make_finding(
        kind="dropped",
        agents=(assignee, request.asker),
        message=f"{assignee} has not worked on {quote_text(request.text)}, which {request.asker} asked, for "
        f"{age}{paused}",
        tick=assignment.since,
        evidence=(request.entry.file, *(hop.entry.file for hop in assignment.handoffs)),
        hint=f"see `lemming requests {request.id}`; {_suggest_fix(scan, request, assignee)}",
    )


def _suggest_fix(scan: FindingScan, request: RequestView, assignee: str) -> str:
    if scan.agents[assignee].paused:
        return f"end the pause with `lemming unpause {assignee}`"
    return (
        f"see what it does instead with `lemming logs {assignee}`, or end the request with "
        f"`lemming cancel {request.id}`"
    )


def _expired_finding(request: RequestView, assignees: tuple[str, ...]) -> Problem:
    return make_finding(
        kind="dropped",
        agents=(*assignees, request.asker),
        message=(
            f"{quote_text(request.text)}, which {request.asker} asked of "
            f"{', '.join(request.targets)}, expired in tick {request.end_tick} without an answer"
        ),
        tick=request.tick,
        evidence=(request.entry.file,),
        hint=(f"see the holder with `lemming requests {request.id}`; set a later deadline, or a default"),
    )


def find_unread_entries(scan: FindingScan) -> Iterator[Problem]:
    """Yield agents with unread entries: removed before the agent read them, or waiting behind other entries."""
    yield from _find_removed_entries(scan)
    waiting: dict[str, list[OutboxEntry]] = {}
    for turn in scan.turns:
        for entry in turn.entries:
            for reader in sorted(entry.targets):
                if entry.kind != "request" and entry.tick < scan.tick and _has_skipped_entry(scan, reader, entry):
                    waiting.setdefault(reader, []).append(entry)
    for reader, entries in sorted(waiting.items()):
        yield make_finding(
            kind="unread",
            agents=(reader,),
            message=f"{reader} has not been shown {format_count(len(entries), 'entry', 'entries')} addressed to "
            f"it, the oldest of tick {entries[0].tick}, in {scan.settings.unread} turns or more",
            tick=entries[0].tick,
            evidence=limit_evidence(entry.file for entry in entries),
            hint=('raise "inbox_limit" or "inbox_chars" in config/org.json, or let it read fewer outboxes'),
        )


def _find_removed_entries(scan: FindingScan) -> Iterator[Problem]:
    missed: dict[str, list[int]] = {}
    counts: dict[str, int] = {}
    for tick_record in scan.ticks:
        for reader, count in tick_record.unread.items():
            missed.setdefault(reader, []).append(tick_record.tick)
            counts[reader] = counts.get(reader, 0) + count
    for reader, ticks in sorted(missed.items()):
        yield make_finding(
            kind="unread",
            agents=(reader,),
            message=f"{format_count(counts[reader], 'entry', 'entries')} "
            f"{'was' if counts[reader] == 1 else 'were'} removed before {reader} was shown "
            f"{'it' if counts[reader] == 1 else 'them'}",
            tick=ticks[0],
            evidence=limit_evidence(paths.journal_file(tick) for tick in ticks),
            hint='raise "retention_ticks" in config/org.json, or let it take turns more often',
        )


def _has_skipped_entry(scan: FindingScan, reader: str, entry: OutboxEntry) -> bool:
    """Return True if a reader took the configured number of turns without reading an entry addressed to the reader."""
    agent = scan.agents.get(reader)
    if agent is None or not scan.takes_turns(reader) or not agent.may_read(entry.agent) or entry.not_before:
        return False
    turns = [turn for turn in scan.by_agent.get(reader, ()) if turn.tick > entry.tick and _has_read_inbox(turn)]
    if len(turns) < scan.settings.unread:
        return False
    name = parse_file_names(entry.agent, [entry.file.rpartition("/")[2]])[0]
    try:
        return not read_state(scan.org, reader).read.has_seen(name) and (scan.org / entry.file).exists()
    except CorruptState:  # of a ledger: others tell of it
        return False


def _has_read_inbox(turn: TurnRecord) -> bool:
    return turn.status in ("done", "waiting")


def find_unverified_work(scan: FindingScan) -> Iterator[Problem]:
    """Yield agents whose output was delivered without passing its judge, or without a required judgement."""
    failed: dict[str, list[TurnRecord]] = {}
    for turn in scan.turns:
        judgement = turn.report.judged if turn.report else None
        if judgement and not judgement["passed"] and _has_unpassed_output(turn):
            failed.setdefault(turn.agent, []).append(turn)
    for agent, turns in failed.items():
        yield make_finding(
            kind="unverified",
            agents=(agent,),
            message=(
                f"the entries of {agent} left in {format_count(len(turns), 'turn')} though "
                f"{_format_judges(turns)} did not pass them"
            ),
            tick=turns[0].tick,
            evidence=format_evidence(turns),
            hint=(
                f'see the reasons with `lemming tick {turns[-1].tick}`; set "then": "fail" in '
                '"verify" to hold such entries back'
            ),
        )
    yield from _find_unjudged_answers(scan)


def _has_unpassed_output(turn: TurnRecord) -> bool:
    """Return True if output was delivered without passing its judge; `"then": "fail"` prevents delivery."""
    remarks = turn.report.remarks if turn.report else []
    return any(remark.startswith(UNPASSED_REMARKS) for remark in remarks)


def _format_judges(turns: list[TurnRecord]) -> str:
    names = dict.fromkeys(
        verdict["by"]
        for turn in turns
        if turn.report and turn.report.judged
        for verdict in turn.report.judged["verdicts"]
        if not verdict["passes"]
    )
    return ", ".join(names) or "its judge"


def _find_unjudged_answers(scan: FindingScan) -> Iterator[Problem]:
    """Yield answers without a judgement, for requests with a verification rule."""
    turns = {entry.identity: turn for turn in scan.turns for entry in turn.entries}
    for request in scan.requests:
        rule_keys = [key for key in ("expect", "verify") if request.entry.payload.get(key)]
        for answer in request.answers if rule_keys else ():
            turn = turns.get(answer.identity)
            if turn and turn.report and turn.report.judged is None:
                yield make_finding(
                    kind="unverified",
                    agents=(turn.agent, request.asker),
                    message=(
                        f'{turn.agent} answered {quote_text(request.text)}, which has "{rule_keys[0]}", and '
                        "no judge saw the answer"
                    ),
                    tick=turn.tick,
                    evidence=(request.entry.file, answer.file, f"{turn.tick}/{turn.agent}"),
                    hint=(
                        f'put "verify" next to {turn.agent} in the team of {request.asker}, or into '
                        f"{paths.resume_file(turn.agent)}: a single entry has no judge"
                    ),
                )
