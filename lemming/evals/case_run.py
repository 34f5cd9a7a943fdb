"""A run of a case: create the copy, run its ticks, and read the results from files."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from lemming.engine import run_opened
from lemming.evals.case_responder import CaseResponder
from lemming.journal_tools.recorded_tick import RecordedTick, RecordedTurn, load_tick_record
from lemming.kernel.base.clock import parse_timestamp, timestamp
from lemming.kernel.base.contract import ToolCall
from lemming.kernel.base.entry_kinds import MessageKind
from lemming.kernel.base.errors import UsageError
from lemming.kernel.journal.journal_file import journal_ticks
from lemming.kernel.journal.turn_report import TickReport
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.config import Config
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.capability_table import provided
from lemming.kernel.providers import Reply, Request
from lemming.kernel.tick.runtime import Runtime
from lemming.kernel.tick.tick_counter import load_tick
from lemming.kernel.tools import ToolResult
from lemming.kernel.tools.tool_context import ToolContext
from lemming.libraries.outbox_files import write_person_entry
from lemming.obligations.org_requests import load_requests
from lemming.obligations.request_entries import require_person, require_reachable, suggest_permission
from lemming.operations.open_org import open_org
from lemming.operations.tick_pacing import BurstController
from lemming.queries.case_format import Case, CaseMessage
from lemming.testing import FrozenClock

DEFAULT_START_TIME = "2026-01-01T09:00:00.000Z"
"""Time of the first tick in an organisation without ticks."""
SUMMED_FIELDS = ("calls", "credits", "cost_usd", "input_tokens", "output_tokens")


@dataclass
class CopyRuntime(Runtime):
    """A runtime with the answers of a case for models and tools, and without channels."""

    uses_gateways: bool = False
    answering: CaseResponder | None = None

    def load_config(self) -> Config:
        """Load the settings, without a cluster executor, which belongs to the original."""
        config = super().load_config()
        if config.org.executor not in provided("executors"):
            return config
        return replace(config, org=replace(config.org, executor="threads"))

    def complete(self, entry: ModelEntry, request: Request, *, live: bool = False) -> Reply:
        """Return the answer of the case to a prompt."""
        assert self.answering
        return self.answering.answer_turn(entry, request, partial(self.complete_live, entry))

    def call_tool(self, index: int, call: ToolCall, context: ToolContext) -> ToolResult:
        """Return the result of the case for a call, or run the call in the copy."""
        assert self.answering
        return self.answering.run_tool_call(call, context, partial(super().call_tool, index, call, context))


@dataclass
class CaseRun:
    """A run of a case in ticks `first` to `last`. `request`: the identity of the case's request."""

    runtime: CopyRuntime
    first: int
    last: int
    request: str = ""
    reports: list[TickReport] = field(default_factory=list)

    @property
    def org(self) -> Organisation:
        """The copy of the organisation."""
        return self.runtime.org

    @cached_property
    def ticks(self) -> list[RecordedTick]:
        """The ticks of the case with at least a turn."""
        return [load_tick_record(self.org, tick) for tick in journal_ticks(self.org) if tick >= self.first]

    @cached_property
    def turns(self) -> list[RecordedTurn]:
        """The turns of the case in order."""
        return [turn for tick in self.ticks for turn in tick.turns]

    @cached_property
    def entries(self) -> list[OutboxEntry]:
        """The entries written by turns of the case, in order."""
        return [entry for turn in self.turns for entry in turn.entries]

    @property
    def failed_turns(self) -> list[str]:
        """The failed turns of the case, each with the reason."""
        failures = [(report.tick, turn) for report in self.reports for turn in report.turns if turn.status == "failed"]
        return [f"tick {tick}, {turn.agent} failed: {turn.reason}" for tick, turn in failures]

    @cached_property
    def totals(self) -> dict[str, Any]:
        """Totals of the run: calls, credits, dollars (None: unknown price), tokens and ticks."""
        tick_totals = [tick.totals for tick in self.ticks]
        sums: dict[str, Any] = {}
        for key in SUMMED_FIELDS:
            values = [totals[key] for totals in tick_totals if totals[key] is not None]
            is_unknown = any(totals[key] is None and totals["calls"] for totals in tick_totals)
            sums[key] = None if is_unknown else round(sum(values), 9)
        return {**sums, "ticks": self.last - self.first + 1}


@contextlib.contextmanager
def open_case(copy: Path, case: Case, answering: CaseResponder) -> Any:
    """Open a copy with the clock at the start time of the case, and yield a `CopyRuntime`."""
    clock = FrozenClock(_find_start_time(Organisation.from_path(copy), case))
    with open_org(copy, command="eval", clock=clock) as opened_org:
        yield CopyRuntime(opened_org.org, clock, epoch=opened_org.epoch, answering=answering)


def run_case(runtime: CopyRuntime, case: Case) -> CaseRun:
    """Run the ticks of a case in a copy. Raises: NoAnswer, OverBudget, and the errors of the engine."""
    clock, first = runtime.clock, load_tick(runtime.org)
    assert isinstance(clock, FrozenClock)
    case_run = CaseRun(runtime, first, first)
    if request := case.ask:
        org_requests = load_requests(runtime.org)
        require_person(org_requests, request.author)
        require_reachable(org_requests, request.author, request.to)
        payload: dict[str, Any] = {"text": request.text, "target": request.to, "conversation": ""}
        if request.schema is not None:
            payload["schema"] = request.schema
        case_run.request = _write_entry(case_run, request.author, "request", payload).identity
    controller, tick_number = BurstController(runtime), 0
    last_sent = max((sent.before_tick for sent in case.send), default=0)
    should_continue = True
    while should_continue:
        tick_number += 1
        for sent in case.send:
            if sent.before_tick == tick_number:
                _write_sent_entry(case_run, sent)
        case_run.last = load_tick(runtime.org)
        case_run.reports.append(run_opened(runtime, case_run.last, advance=True))
        clock.advance(runtime.load_config().org.tick_interval_s)
        if case.ticks is not None:
            should_continue = tick_number < case.ticks
        else:
            should_continue = controller.should_continue(case_run.reports[-1]) or tick_number < last_sent
    return case_run


def _find_start_time(org: Organisation, case: Case) -> datetime:
    """Return the clock's start time: from the case, or else an hour after the last tick."""
    if case.now:
        return parse_timestamp(case.now)
    ticks = journal_ticks(org)
    if not ticks:
        return parse_timestamp(DEFAULT_START_TIME)
    return parse_timestamp(load_tick_record(org, ticks[-1]).start_record.at) + timedelta(hours=1)


def _write_sent_entry(case_run: CaseRun, sent: CaseMessage) -> None:
    org_requests = load_requests(case_run.org)
    require_person(org_requests, sent.author)
    if sent.to and sent.to not in org_requests.agent_names:
        hint = f"agents: {', '.join(sorted(org_requests.agent_names))}"
        raise UsageError(f'agent "{sent.to}" does not exist', hint=hint)
    if sent.to and not org_requests.may_read(sent.to, sent.author):
        raise UsageError(f"{sent.to} may not read {sent.author}", hint=suggest_permission(sent.to, sent.author))
    target = {"target": sent.to} if sent.to else {}
    _write_entry(case_run, sent.author, sent.kind, {"text": sent.text, **target, **sent.payload})


def _write_entry(case_run: CaseRun, author: str, kind: MessageKind, payload: dict[str, Any]) -> OutboxEntry:
    return write_person_entry(
        case_run.org,
        author,
        tick=load_tick(case_run.org),
        kind=kind,
        payload=payload,
        tags=[],
        created_at=timestamp(case_run.runtime.clock.now()),
    )
