"""One run of a case: the copy is made, its ticks are run, and what they came to is read from its files."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from lemming.capabilities.requests.now import requests_now
from lemming.capabilities.requests.people import missing_line, require_person, require_reach
from lemming.engine import run_opened
from lemming.evals.answering import Answering
from lemming.facts.cases import Case, Sent
from lemming.kernel import messages
from lemming.kernel.base.clock import FrozenClock, parse_timestamp, timestamp
from lemming.kernel.base.contract import ToolCall
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.kinds import MessageKind
from lemming.kernel.journal.file import journal_ticks
from lemming.kernel.journal.report import TickReport
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.config import Config
from lemming.kernel.org.models import ModelEntry
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.shipped import EXECUTORS
from lemming.kernel.providers import Reply, Request
from lemming.kernel.tick.counter import load_tick
from lemming.kernel.tick.runtime import Runtime, open_org
from lemming.kernel.tools import ToolResult
from lemming.kernel.tools.context import ToolContext
from lemming.service.eager import Eager
from lemming.timeline.record import RecordedTick, TurnRecord, read_tick

BEGINNING = "2026-01-01T09:00:00.000Z"
"""What the clock says in the first tick of an organisation that has run none."""
TOTALS = ("calls", "credits", "cost_usd", "input_tokens", "output_tokens")


@dataclass
class CopyRuntime(Runtime):
    """A runtime in which models and tools answer as a case says, and no channel is seen to."""

    sees_to_channels: bool = False
    answering: Answering | None = None

    def load_config(self) -> Config:
        """Read the settings afresh; a cluster belongs to the original."""
        config = super().load_config()
        if config.org.executor not in EXECUTORS:
            return config
        return replace(config, org=replace(config.org, executor="threads"))

    def complete(self, entry: ModelEntry, request: Request, *, live: bool = False) -> Reply:
        """Return the answer that the case has for a question."""
        assert self.answering
        return self.answering.answer(entry, request, partial(self.complete_live, entry))

    def use_tool(self, index: int, call: ToolCall, context: ToolContext) -> ToolResult:
        """Return what the case has for a call, or make it in the copy."""
        assert self.answering
        return self.answering.use(call, context, partial(super().use_tool, index, call, context))


@dataclass
class Ran:
    """What a run has come to: its ticks are `first` to `last`. `request`: the identity of what was asked."""

    runtime: CopyRuntime
    first: int
    last: int
    request: str = ""
    reports: list[TickReport] = field(default_factory=list)

    @property
    def org(self) -> Organisation:
        """The copy."""
        return self.runtime.org

    @cached_property
    def ticks(self) -> list[RecordedTick]:
        """The ticks of the case in which somebody took a turn."""
        return [read_tick(self.org, tick) for tick in journal_ticks(self.org) if tick >= self.first]

    @cached_property
    def turns(self) -> list[TurnRecord]:
        """The turns of the case, in their order."""
        return [turn for tick in self.ticks for turn in tick.turns]

    @cached_property
    def entries(self) -> list[OutboxEntry]:
        """The entries that turns of the case wrote, in their order."""
        return [entry for turn in self.turns for entry in turn.entries]

    @property
    def not_done(self) -> list[str]:
        """The turns of the case that failed, each with the reason."""
        failed = [(it.tick, turn) for it in self.reports for turn in it.turns if turn.status == "failed"]
        return [f"tick {tick}, {turn.agent} failed: {turn.reason}" for tick, turn in failed]

    @cached_property
    def totals(self) -> dict[str, Any]:
        """What it cost: calls, credits, dollars (None: a price is not known), tokens; and its ticks."""
        found = [tick.totals for tick in self.ticks]
        sums: dict[str, Any] = {}
        for key in TOTALS:
            known = [each[key] for each in found if each[key] is not None]
            is_unknown = any(each[key] is None and each["calls"] for each in found)
            sums[key] = None if is_unknown else round(sum(known), 9)
        return {**sums, "ticks": self.last - self.first + 1}


@contextlib.contextmanager
def opened(copy: Path, case: Case, answering: Answering) -> Any:
    """Hold a copy, its clock at the moment at which the case begins; yields a `CopyRuntime`."""
    clock = FrozenClock(_beginning(Organisation.at(copy), case))
    with open_org(copy, command="eval", clock=clock) as it:
        yield CopyRuntime(it.org, clock, epoch=it.epoch, answering=answering)


def run_case(runtime: CopyRuntime, case: Case) -> Ran:
    """Run the ticks of a case in its copy. Raises what the engine raises, `NoAnswer` and `OverBudget`."""
    clock, first = runtime.clock, load_tick(runtime.org)
    assert isinstance(clock, FrozenClock)
    ran = Ran(runtime, first, first)
    if case.ask:
        ran.request = _ask(ran, case)
    row, number = Eager(runtime), 0
    last_sent = max((sent.before_tick for sent in case.send), default=0)
    goes_on = True
    while goes_on:
        number += 1
        for sent in case.send:
            if sent.before_tick == number:
                _send(ran, sent)
        ran.last = load_tick(runtime.org)
        ran.reports.append(run_opened(runtime, ran.last, advance=True))
        clock.advance(runtime.load_config().org.tick_interval_s)
        if case.ticks is not None:
            goes_on = number < case.ticks
        else:
            goes_on = row.goes_on(ran.reports[-1]) or number < last_sent
    return ran


def _beginning(org: Organisation, case: Case) -> datetime:
    """Return what the clock says in the first tick: what the case says, else an hour after the last tick."""
    if case.now:
        return parse_timestamp(case.now)
    ticks = journal_ticks(org)
    if not ticks:
        return parse_timestamp(BEGINNING)
    return parse_timestamp(read_tick(org, ticks[-1]).begin.at) + timedelta(hours=1)


def _ask(ran: Ran, case: Case) -> str:
    """Make the request of a case, and return its identity."""
    assert case.ask
    now, asked = requests_now(ran.org), case.ask
    require_person(now, asked.author)
    require_reach(now, asked.author, asked.to)
    payload: dict[str, Any] = {"text": asked.text, "target": asked.to, "conversation": ""}
    if asked.schema is not None:
        payload["schema"] = asked.schema
    return _write(ran, asked.author, "request", payload).identity


def _send(ran: Ran, sent: Sent) -> None:
    now = requests_now(ran.org)
    require_person(now, sent.author)
    if sent.to and not now.may_read(sent.to, sent.author):
        if sent.to not in now.names:
            raise UsageError(f'there is no agent "{sent.to}"', hint=f"agents: {', '.join(sorted(now.names))}")
        raise UsageError(f"{sent.to} may not read {sent.author}", hint=missing_line(sent.to, sent.author))
    target = {"target": sent.to} if sent.to else {}
    _write(ran, sent.author, sent.kind, {"text": sent.text, **target, **sent.payload})


def _write(ran: Ran, author: str, kind: MessageKind, payload: dict[str, Any]) -> OutboxEntry:
    return messages.send(
        ran.org,
        author,
        tick=load_tick(ran.org),
        kind=kind,
        payload=payload,
        tags=[],
        created_at=timestamp(ran.runtime.clock.now()),
    )
