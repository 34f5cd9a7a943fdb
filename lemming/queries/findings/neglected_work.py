"""Rules for neglected work: dropped requests, unread entries and unverified answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from lemming.journal_tools.recorded_tick import RecordedTurn
from lemming.kernel.base import paths
from lemming.kernel.base.errors import CorruptState, Problem
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.messages import OutboxEntry, parse_file_names
from lemming.libraries.wording import format_count
from lemming.obligations.request_view import Assignment, RequestView
from lemming.obligations.waiting_items import is_scheduled_later
from lemming.queries.findings.finding_scan import FindingScan, make_finding, quote_start

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
        is_recent = request.end_tick is not None and request.end_tick >= scan.first_tick
        assignees = tuple(name for name in (share.assignee for share in request.assignments) if scan.takes_turns(name))
        if request.end == "expired" and not request.has_default and is_recent and assignees:
            subject = f"{quote_start(request.text)}, which {request.asker} asked of {', '.join(request.targets)}"
            yield make_finding(
                (*assignees, request.asker),
                f"{subject}, expired in tick {request.end_tick} without an answer",
                f"see the assignee with `lemming requests {request.id}`; set a later deadline, or a default",
                tick=request.tick,
                evidence=(request.entry.file,),
            )


def _is_dropped(scan: FindingScan, request: RequestView, assignment: Assignment) -> bool:
    assignee, asker = assignment.assignee, request.asker
    giver = assignment.handoffs[-1].by if assignment.handoffs else asker
    if not scan.takes_turns(assignee) or not scan.agents[assignee].may_read(giver):
        return False  # a person's, or out of reach: others tell of these
    limit = scan.settings.dropped
    schedule = scan.agents[assignee].schedule
    if scan.tick - assignment.since < max(limit, 2 * schedule.run_every_n_ticks):
        return False
    turns = [turn for turn in scan.by_agent.get(assignee, ()) if turn.tick > assignment.since]
    if schedule.cron is not None and len(turns) < 2:
        return False
    children = (scan.requests.by_identity.get(child) for child in request.children)
    if any(child and child.is_open for child in children):
        return False
    if not scan.is_complete_from_tick(scan.tick - limit):
        return False  # it may have been worked on in ticks that were not read
    recent = [turn for turn in turns if turn.tick >= scan.tick - limit]
    is_served = any(scan.find_turn_request(turn) is request for turn in recent)
    entries = (entry for turn in turns for entry in turn.entries)
    return not is_served and not any(
        asker in written_entry.targets or written_entry.kind == "status" for written_entry in entries
    )


def _dropped_finding(scan: FindingScan, request: RequestView, assignment: Assignment) -> Problem:
    assignee, is_paused = assignment.assignee, scan.agents[assignment.assignee].paused
    age = format_count(scan.tick - assignment.since, "tick")
    message = f"{assignee} has not worked on {quote_start(request.text)}, which {request.asker} asked, for {age}"
    look = f"see what it does instead with `lemming logs {assignee}`, or end the request with `lemming cancel {request.id}`"
    fix = f"end the pause with `lemming unpause {assignee}`" if is_paused else look
    return make_finding(
        (assignee, request.asker),
        f"{message}; {assignee} is paused" if is_paused else message,
        f"see `lemming requests {request.id}`; {fix}",
        tick=assignment.since,
        evidence=(request.entry.file, *(hop.entry.file for hop in assignment.handoffs)),
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
        count = format_count(len(entries), "entry", "entries")
        since = f"the oldest of tick {entries[0].tick}, in {scan.settings.unread} turns or more"
        yield make_finding(
            (reader,),
            f"{reader} has not been shown {count} addressed to it, {since}",
            'raise "inbox_limit" or "inbox_chars" in config/org.json, or let it read fewer outboxes',
            tick=entries[0].tick,
            evidence=[entry.file for entry in entries],
        )


def _find_removed_entries(scan: FindingScan) -> Iterator[Problem]:
    missed, counts = dict[str, list[int]](), Counter[str]()
    for tick_record in scan.ticks:
        counts.update(tick_record.unread)
        for reader in tick_record.unread:
            missed.setdefault(reader, []).append(tick_record.tick)
    for reader, ticks in sorted(missed.items()):
        verb, pronoun = ("was", "it") if counts[reader] == 1 else ("were", "them")
        entries = format_count(counts[reader], "entry", "entries")
        yield make_finding(
            (reader,),
            f"{entries} {verb} removed before {reader} was shown {pronoun}",
            'raise "retention_ticks" in config/org.json, or let it take turns more often',
            tick=ticks[0],
            evidence=[paths.journal_file(tick) for tick in ticks],
        )


def _has_skipped_entry(scan: FindingScan, reader: str, entry: OutboxEntry) -> bool:
    """Return True if a reader took the configured number of turns without reading an entry addressed to the reader."""
    agent = scan.agents.get(reader)
    if agent is None or not scan.takes_turns(reader) or not agent.may_read(entry.agent) or entry.not_before:
        return False
    turns = (turn for turn in scan.by_agent.get(reader, ()) if turn.tick > entry.tick)
    if sum(turn.status in ("done", "waiting") for turn in turns) < scan.settings.unread:
        return False
    name = parse_file_names(entry.agent, [entry.file.rpartition("/")[2]])[0]
    try:
        return not read_state(scan.org, reader).read.has_seen(name) and (scan.org / entry.file).exists()
    except CorruptState:  # of a ledger: others tell of it
        return False


def find_unverified_work(scan: FindingScan) -> Iterator[Problem]:
    """Yield agents whose output was delivered without passing its judge, or without a required judgement."""
    failed: dict[str, list[RecordedTurn]] = {}
    for turn in scan.turns:
        judgement, remarks = (turn.report.judged, turn.report.remarks) if turn.report else (None, [])
        is_delivered = any(remark.startswith(UNPASSED_REMARKS) for remark in remarks)  # `"then": "fail"` prevents it
        if judgement and not judgement["passed"] and is_delivered:
            failed.setdefault(turn.agent, []).append(turn)
    for agent, turns in failed.items():
        count = format_count(len(turns), "turn")
        reasons = f"see the reasons with `lemming tick {turns[-1].tick}`"
        yield make_finding(
            (agent,),
            f"the entries of {agent} left in {count} though {_format_judges(turns)} did not pass them",
            f'{reasons}; set "then": "fail" in "verify" to hold such entries back',
            turns,
        )
    yield from _find_unjudged_answers(scan)


def _format_judges(turns: list[RecordedTurn]) -> str:
    judgements = [turn.report.judged for turn in turns if turn.report and turn.report.judged]
    verdicts = (verdict for judgement in judgements for verdict in judgement["verdicts"])
    return ", ".join(dict.fromkeys(verdict["by"] for verdict in verdicts if not verdict["passes"])) or "its judge"


def _find_unjudged_answers(scan: FindingScan) -> Iterator[Problem]:
    """Yield answers without a judgement, for requests with a verification rule."""
    turns = {entry.identity: turn for turn in scan.turns for entry in turn.entries}
    for request in scan.requests:
        rule_keys = [key for key in ("expect", "verify") if request.entry.payload.get(key)]
        for answer in request.answers if rule_keys else ():
            turn = turns.get(answer.identity)
            if turn and turn.report and turn.report.judged is None:
                answered = f'{turn.agent} answered {quote_start(request.text)}, which has "{rule_keys[0]}"'
                team = f'put "verify" next to {turn.agent} in the team of {request.asker}'
                yield make_finding(
                    (turn.agent, request.asker),
                    f"{answered}, and no judge saw the answer",
                    f"{team}, or into {paths.resume_file(turn.agent)}: a single entry has no judge",
                    [turn],
                    evidence=(request.entry.file, answer.file, f"{turn.tick}/{turn.agent}"),
                )
