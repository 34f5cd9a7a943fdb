"""What is asked and comes to nothing: requests dropped, entries unread, answers unverified."""

from __future__ import annotations

from collections.abc import Iterator

from lemming.capabilities.requests.view import RequestView, Share
from lemming.capabilities.requests.waiting import is_to_come
from lemming.facts.findings.finding import Finding, few, named, quoted
from lemming.facts.findings.look import Look
from lemming.kernel.base import paths
from lemming.kernel.base.errors import CorruptState
from lemming.kernel.base.wording import counted
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.messages import OutboxEntry, names_in
from lemming.timeline.record import TurnRecord


def dropped(look: Look) -> Iterator[Finding]:
    """Yield each request that nobody works on, though who holds it can read it; and each that expired so."""
    if look.config.org.paused:
        return
    for request in look.requests:
        for share in request.open_shares:
            if not is_to_come(request) and _is_dropped(look, request, share):
                yield _dropped(look, request, share)
        if request.end == "expired" and not request.has_default and _is_recent(look, request):
            holders = tuple(share.holder for share in request.shares if look.takes_turns(share.holder))
            if holders:
                yield _expired(request, holders)


def _is_recent(look: Look, request: RequestView) -> bool:
    return request.end_tick is not None and request.end_tick >= look.first


def _is_dropped(look: Look, request: RequestView, share: Share) -> bool:
    holder, asker = share.holder, request.asker
    if not look.takes_turns(holder) or not look.agents[holder].may_read(asker):
        return False  # a person's, or out of reach: others tell of these
    patience = look.settings.dropped
    schedule = look.agents[holder].schedule
    if look.tick - share.since < max(patience, 2 * schedule.run_every_n_ticks):
        return False
    turns = [turn for turn in look.by_agent.get(holder, ()) if turn.tick > share.since]
    if schedule.cron is not None and len(turns) < 2:
        return False
    if any(_waits_for(look, child) for child in request.children):
        return False
    if not look.tells_of(look.tick - patience):
        return False  # it may have been worked on in ticks that were not read
    recent = [turn for turn in turns if turn.tick >= look.tick - patience]
    is_served = any(turn.report and turn.report.request == request.identity for turn in recent)
    entries = (entry for turn in turns for entry in turn.entries)
    return not is_served and not any(asker in it.targets or it.kind == "status" for it in entries)


def _waits_for(look: Look, child: str) -> bool:
    request = look.requests.by_identity.get(child)
    return request is not None and request.is_open


def _dropped(look: Look, request: RequestView, share: Share) -> Finding:
    holder = share.holder
    age = counted(look.tick - share.since, "tick")
    paused = f"; {holder} is paused" if look.agents[holder].paused else ""
    return Finding(
        kind="dropped",
        agents=(holder, request.asker),
        message=f"{holder} has not worked on {quoted(request.text)}, which {request.asker} asked, for "
        f"{age}{paused}",
        since=share.since,
        evidence=(request.entry.file, *(hop.entry.file for hop in share.hops)),
        hint=f"`lemming requests {request.id}` shows where it stands; {_way_out(look, request, holder)}",
    )


def _way_out(look: Look, request: RequestView, holder: str) -> str:
    if look.agents[holder].paused:
        return f"`lemming resume {holder}` lets it go on"
    return f"`lemming logs {holder}` shows what it does instead, `lemming cancel {request.id}` ends it"


def _expired(request: RequestView, holders: tuple[str, ...]) -> Finding:
    return Finding(
        kind="dropped",
        agents=(*holders, request.asker),
        message=f"{quoted(request.text)}, which {request.asker} asked of {', '.join(request.targets)}, "
        f"expired in tick {request.end_tick} without an answer",
        since=request.tick,
        evidence=(request.entry.file,),
        hint=f"`lemming requests {request.id}` shows who held it; give it a later deadline, or a default",
    )


def unread(look: Look) -> Iterator[Finding]:
    """Yield each agent that was not shown entries: they were removed before, or wait behind others."""
    yield from _removed(look)
    waiting: dict[str, list[OutboxEntry]] = {}
    for turn in look.turns:
        for entry in turn.entries:
            for reader in sorted(entry.targets):
                if (
                    entry.kind != "request"
                    and entry.tick < look.tick
                    and _has_passed_over(look, reader, entry)
                ):
                    waiting.setdefault(reader, []).append(entry)
    for reader, entries in sorted(waiting.items()):
        yield Finding(
            kind="unread",
            agents=(reader,),
            message=f"{reader} has not been shown {counted(len(entries), 'entry', 'entries')} addressed to "
            f"it, the oldest of tick {entries[0].tick}, in {look.settings.unread} turns or more",
            since=entries[0].tick,
            evidence=few(entry.file for entry in entries),
            hint='raise "inbox_limit" or "inbox_chars" in config/org.json, or have it read fewer outboxes',
        )


def _removed(look: Look) -> Iterator[Finding]:
    missed: dict[str, list[int]] = {}
    counts: dict[str, int] = {}
    for recorded in look.ticks:
        for reader, count in recorded.unread.items():
            missed.setdefault(reader, []).append(recorded.tick)
            counts[reader] = counts.get(reader, 0) + count
    for reader, ticks in sorted(missed.items()):
        yield Finding(
            kind="unread",
            agents=(reader,),
            message=f"{counted(counts[reader], 'entry', 'entries')} "
            f"{'was' if counts[reader] == 1 else 'were'} removed before {reader} was shown "
            f"{'it' if counts[reader] == 1 else 'them'}",
            since=ticks[0],
            evidence=few(paths.journal_file(tick) for tick in ticks),
            hint='raise "retention_ticks" in config/org.json, or let it take turns more often',
        )


def _has_passed_over(look: Look, reader: str, entry: OutboxEntry) -> bool:
    """Return whether a reader took so many turns since, and was not shown an entry that is for it."""
    agent = look.agents.get(reader)
    if agent is None or not look.takes_turns(reader) or not agent.may_read(entry.agent) or entry.not_before:
        return False
    turns = [turn for turn in look.by_agent.get(reader, ()) if turn.tick > entry.tick and _looks(turn)]
    if len(turns) < look.settings.unread:
        return False
    name = names_in(entry.agent, [entry.file.rpartition("/")[2]])[0]
    try:
        return not read_state(look.org, reader).read.covers(name) and (look.org / entry.file).exists()
    except CorruptState:  # of a ledger: others tell of it
        return False


def _looks(turn: TurnRecord) -> bool:
    return turn.status in ("done", "waiting")


def unverified(look: Look) -> Iterator[Finding]:
    """Yield each agent whose work left though no judge passed it, or nobody judged what was to be."""
    failed: dict[str, list[TurnRecord]] = {}
    for turn in look.turns:
        judged = turn.report.judged if turn.report else None
        if judged and not judged["passed"] and _let_through(turn):
            failed.setdefault(turn.agent, []).append(turn)
    for agent, turns in failed.items():
        yield Finding(
            kind="unverified",
            agents=(agent,),
            message=f"what {agent} wrote left in {counted(len(turns), 'turn')} though "
            f"{_judges(turns)} did not pass it",
            since=turns[0].tick,
            evidence=named(turns),
            hint=f"`lemming tick {turns[-1].tick}` shows the reasons; "
            '"then": "fail" in "verify" keeps it from leaving',
        )
    yield from _not_judged(look)


def _let_through(turn: TurnRecord) -> bool:
    """Return whether something left that its judge did not pass; with `then` "fail" only that is said."""
    from lemming.capabilities.judges.settings import LEFT_UNPASSED  # only where something was judged

    remarks = turn.report.remarks if turn.report else []
    return any(remark.startswith(LEFT_UNPASSED) for remark in remarks)


def _judges(turns: list[TurnRecord]) -> str:
    names = dict.fromkeys(
        said["by"]
        for turn in turns
        if turn.report and turn.report.judged
        for said in turn.report.judged["verdicts"]
        if not said["passes"]
    )
    return ", ".join(names) or "its judge"


def _not_judged(look: Look) -> Iterator[Finding]:
    """Yield answers that nobody judged, to requests that say how they are to be verified."""
    turns = {entry.identity: turn for turn in look.turns for entry in turn.entries}
    for request in look.requests:
        asked = [key for key in ("expect", "verify") if request.entry.payload.get(key)]
        for answer in request.answers if asked else ():
            turn = turns.get(answer.identity)
            if turn and turn.report and turn.report.judged is None:
                yield Finding(
                    kind="unverified",
                    agents=(turn.agent, request.asker),
                    message=f'{turn.agent} answered {quoted(request.text)}, which says "{asked[0]}", and '
                    "nobody judged the answer",
                    since=turn.tick,
                    evidence=(request.entry.file, answer.file, f"{turn.tick}/{turn.agent}"),
                    hint=f'an entry alone has no judge: put "verify" beside {turn.agent} in the team of '
                    f"{request.asker}, or into {paths.resume_file(turn.agent)}",
                )
