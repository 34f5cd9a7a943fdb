"""The whole engine in one file. Read it from the top: the functions stand in the order of a tick.

A tick is a function of the files and of the answers from outside: models, tools, the clock. Each agent that is due,
in the order of (fire point, name), takes a turn, and a turn is five steps:

    look     read what the agent may see, and record all of it     turn_started
    ask      ask its model, and call the tools that it names
    journal  record each answer before anything follows from it    model_replied, tool_finished
    apply    fold the answers into entries, memories and files
    commit   write the files, then the ledger, then the record     turn_committed

A turn is a generator that yields effects. The two that reach outside, `AskModel` and `CallTool`, are answered from
the journal first, and only a missing answer is asked for. So the code that takes a turn is also the code that finishes
it after `kill -9`: nothing is lost, and no answer is paid for twice.

    python -m lemming.kernel.line FOLDER

runs one tick of a plain organisation (`plain_organisation.py`): its models take `"prompt": "values"`, its tools read
and write files. What shows only in the middle of a tick, such as a request, is left to `lemming run-once`: it finishes
the same tick from the same journal. `lemming/operations/one_tick.py` adds all capabilities, and many turns at a time.
"""

from __future__ import annotations

import contextlib
import os
import platform
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from lemming.kernel import plain_organisation
from lemming.kernel.agents import Agent, Survey
from lemming.kernel.base import contract, errors, paths
from lemming.kernel.base.clock import Clock, SystemClock, elapsed_ms, timestamp
from lemming.kernel.base.errors import ContractError, CorruptState, LemmingError, OutOfCredits, ProviderError
from lemming.kernel.base.integers import LAST_TICK, bounded_int
from lemming.kernel.base.jsontext import JsonProblem, dump_compact, dump_pretty_flat, parse, to_line
from lemming.kernel.base.redaction.secrets import redact_values
from lemming.kernel.base.untrusted_quoting import escape_markers
from lemming.kernel.files import fs
from lemming.kernel.files.field_types import Json
from lemming.kernel.files.file_effects import FileEffect, apply_effect, order_effects
from lemming.kernel.files.folder_lock import FolderLock
from lemming.kernel.inboxes.inbox import build_inbox
from lemming.kernel.inboxes.reader_view import ReaderView
from lemming.kernel.inboxes.visibility import MailView
from lemming.kernel.journal import journal_records as records
from lemming.kernel.journal.journal_file import Journal, is_committed, journal_ticks, next_epoch, read_journal
from lemming.kernel.journal.journal_parser import attempts_without_progress, find_start_and_end, find_tick_started
from lemming.kernel.journal.ledger import AgentState, read_state, write_state
from lemming.kernel.journal.read_cursor import ReadMark
from lemming.kernel.journal.record_parts import PREFIX_FIELDS
from lemming.kernel.journal.turn_report import STATUS_OF, USUAL_ENDS, End, TickReport, ToolUseJson, TurnReport
from lemming.kernel.llm.call_cost import check_credits, compute_usage
from lemming.kernel.llm.model_call import call_provider
from lemming.kernel.memory import load_memories, make_memory_effect
from lemming.kernel.messages import OutboxEntry, entry_id, to_file_effect
from lemming.kernel.org.capability_usage import resolve_credits
from lemming.kernel.org.config import Config
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.org.schedule import is_due
from lemming.kernel.org.settings_files import load_recorded_settings
from lemming.kernel.providers import Message, Reply, Request, make_provider
from lemming.kernel.tick.firing_plan import find_paused_agents
from lemming.kernel.tools.tool_call import call_tool
from lemming.kernel.tools.tool_context import ToolContext

NOTICE = "(notice)"  # the tool in a result that no tool gave: the engine's own words
RESULTS_CHARS, ARGS_CHARS, QUOTED_CHARS, NOTICE_CHARS, REMARK_CHARS = 128_000, 2000, 4000, 1000, 500


# --- effects: what a turn asks for, with the time of the reply that asks ------------------------------------------


@dataclass(frozen=True)
class AskModel:
    """Ask the agent's model. The answer is a `ModelReplied`; a failure is raised."""

    messages: tuple[Message, ...]


@dataclass(frozen=True)
class CallTool:
    """Call a tool. The answer is a `ToolFinished`, with the files to write."""

    call: contract.ToolCall
    at: str


@dataclass(frozen=True)
class WriteEntry:
    """Write an entry into the agent's own outbox."""

    new: contract.NewEntry
    at: str


@dataclass(frozen=True)
class WriteMemory:
    """Keep a value under a key of the agent's memory."""

    update: contract.MemoryUpdate
    at: str


Effect = AskModel | CallTool | WriteEntry | WriteMemory


def run_tick(base_path: str | os.PathLike[str], *, clock: Clock | None = None) -> TickReport:
    """Run the tick that `tick.json` names, or finish it, and return its report.

    Raises `ConfigError` for a setting that is not understood, before anything is written, `LeftToEngine` for what shows
    later, `NotAnOrg`, `OrgBusy`, `CorruptState`, `TickAlreadyCommitted`, `DiskError`.
    """
    org = Organisation(base_path)
    plain_organisation.load(org)  # before anything is written, the lock too
    with _lock(org, clock := clock or SystemClock()) as epoch:
        return Tick(org, *plain_organisation.load(org), clock, epoch).run()


@contextlib.contextmanager
def _lock(org: Organisation, clock: Clock) -> Iterator[int]:
    """Hold the folder for the block, and return the epoch: the number of this start of an engine."""
    lock = FolderLock(org.base, paths.LOCK_FILE)
    with contextlib.ExitStack() as stack:
        stack.callback(lock.release)
        epoch = next_epoch(org, lock.load_holder())
        process: dict[str, str | int] = {"pid": os.getpid(), "host": platform.node(), "since": timestamp(clock.now())}
        lock.write_holder(dump_pretty_flat({**process, "command": "line", "epoch": epoch}))
        yield epoch
        lock.write_holder(dump_pretty_flat({"epoch": epoch}), is_leaving=True)


class Tick:
    """One tick of an organisation. `number`: the tick; `plan`: the first record of its journal."""

    def __init__(self, org: Organisation, config: Config, survey: Survey, clock: Clock, epoch: int) -> None:
        self.org, self.config, self.survey, self.clock, self.epoch = org, config, survey, clock, epoch
        self.reports: list[TurnReport] = []

    def run(self) -> TickReport:
        """Plan, take the turns, remove old entries, move the counter, commit."""
        ticks = journal_ticks(self.org, with_sealed=False)
        self.number = self._find_number(ticks)
        past = read_journal(self.org, self.number) if self.number in ticks else []
        self.plan = find_tick_started(past) or self._make_plan([tick for tick in ticks if tick < self.number])
        is_known = not ticks or self.config.digests.keys() <= load_recorded_settings(self.org)
        if not past and is_known and all(map(self._find_skip, self.plan.order)):  # nobody takes a turn: no journal
            self._advance_counter()
            return self._report()
        with Journal(self.org, self.number, epoch=self.epoch, durability="turn") as self.journal:
            if not past:
                self.journal.append(self.plan)
            elif self.plan.boot != self.clock.boot_id:
                raise plain_organisation.LeftToEngine("the machine was started again in the middle of this tick")
            mail = self.mail = MailView(  # the outboxes as all turns see them: from here on only turns add entries
                self.org, tick=self.number, order=self.survey.turn_order, firing=self.plan.order, at=self.plan.at,
                visibility=self.config.org.visibility, broken=self.survey.broken, agents=self.survey.agents,
            )  # fmt: skip
            mail.scan_outboxes(self.survey.agents.values())
            for name in self.plan.order:
                self.reports.append(self._take_turn(name))
                files = [self.org.base / entry["file"] for entry in self.reports[-1].entries]
                mail.add(name, [OutboxEntry(**parse(fs.read_bytes(file, 1 << 20))) for file in files if file.exists()])
            self._remove_old_entries()
            self._advance_counter()
            self.journal.append(records.TickCommitted(tick=self.number, advanced=True, totals=self._report().totals))
        return self._report()

    def _find_number(self, ticks: list[int]) -> int:
        """Return the next tick. A tick is applied once, and the one before it is over first."""
        number = self._load_counter(ticks)
        for earlier in [tick for tick in ticks if tick < number][-1:]:
            plan = find_tick_started(past := [] if is_committed(self.org, earlier) else read_journal(self.org, earlier))
            reports = [record.report for record in past if isinstance(record, records.TurnEnded)]
            if plan and {*plan.order} - {report.agent for report in reports}:
                raise CorruptState(f"tick {earlier} was interrupted and is unfinished", where=paths.TICK_FILE)
            if plan:  # the kill came between the counter and the last record
                totals = TickReport(tick=earlier, turns=(*reports, *_report_excluded(plan))).totals
                with Journal(self.org, earlier, epoch=self.epoch, durability="turn") as journal:
                    journal.append(records.TickCommitted(tick=earlier, advanced=True, totals=totals))
        newest = max([*ticks[-1:], *(read_state(self.org, name).tick for name in self.survey.agents)], default=-1)
        if newest > number or is_committed(self.org, number):
            raise errors.TickAlreadyCommitted(f"tick {number} is over: it is applied once", where=paths.TICK_FILE)
        return number

    def _load_counter(self, ticks: list[int]) -> int:
        """Return the number in `tick.json`. The first run writes it; one that cannot be read is never replaced."""
        file, base = paths.TICK_FILE, self.org.base
        if not (ticks or (base / file).exists() or any(base.glob("agents/*/turns.jsonl"))):
            fs.write_atomic(base, file, dump_pretty_flat({"current_tick": 1}), sync=True)
        try:
            plain = parse(fs.read_bytes(base / file, 4096), allow_bom=True)
        except (OSError, JsonProblem) as error:
            raise CorruptState(f"cannot read the tick counter: {error}", where=file) from error
        number = bounded_int(plain.get("current_tick"), le=LAST_TICK) if isinstance(plain, dict) else None
        if number is None:
            raise CorruptState('expected {"current_tick": N} with a whole number N', where=file)
        return number

    def _make_plan(self, earlier_ticks: list[int]) -> records.TickStarted:
        """Return which agents take a turn in which order, and why the others take none."""
        agents, skipped = self.survey.agents, find_paused_agents(self.survey, self.config)
        due = {name for name, agent in agents.items() if is_due(agent.schedule, self.number)} - skipped.keys()
        settings: dict[str, Any] = {"settings": {**self.config.digests}} if self.config.digests else {}
        return records.TickStarted(
            at=timestamp(self.clock.now()), boot=self.clock.boot_id, after=max(earlier_ticks, default=None),
            tick=self.number, order=[name for name in self.survey.turn_order if name in due],
            not_due=[name for name in agents if name not in due | skipped.keys()], skipped=skipped,
            broken={name: str(error) for name, error in self.survey.broken.items()}, **settings,
        )  # fmt: skip

    # --- one turn: look, ask and apply, commit --------------------------------------------------------------------

    def _take_turn(self, name: str) -> TurnReport:
        """Take an agent's turn, finish it, or find it over in the journal; return its report."""
        past = self.journal.find_agent_records(name)
        start, end = find_start_and_end(past)
        if end:
            return end.report
        agent, is_replay = self.survey.agents.get(name), start is not None
        if agent is None or (start and start.resume != _record_resume(agent)):
            raise plain_organisation.LeftToEngine(f"the resume of {name} has changed since the tick began")
        if start is None:
            if skip := self._find_skip(name):
                return self.journal.append(skip).report
            start = self._record_start(self._look(agent))
        turn, attempts = Turn(self, agent, start, past), attempts_without_progress(past)
        if attempts >= self.config.org.max_attempts:
            turn.abandon(f"the engine ended {attempts} times during this turn; abandoned so that the tick can continue")
        else:
            if is_replay:  # recorded: an attempt that ends the engine counts
                self.journal.append(records.TurnResumed(agent=name))
            turn.take()
        self._commit(turn, is_replay=is_replay)
        return turn.report

    def _find_skip(self, name: str) -> records.TurnSkipped | None:
        """Return the record of the skip if a due agent cannot pay for a call, or None."""
        agent, spent = self.survey.agents[name], read_state(self.org, name, before_tick=self.number).credits
        try:
            check_credits(self.config.model(agent.model.key), resolve_credits(self.config, name, agent.credits), spent)
        except OutOfCredits as error:
            error_fields: dict[str, Any] = {"reason": str(error), "error": errors.error_name(error)}
            return records.TurnSkipped(
                report=TurnReport(agent=name, status="skipped", end="out_of_credits", **error_fields)
            )
        return None

    def _look(self, agent: Agent) -> records.TurnStarted:
        """Return all that a turn starts from. From here on the files may change."""
        name, settings, loops = agent.name, self.config.org, self.config.org.loops
        model, allocation = self.config.model(agent.model.key), resolve_credits(self.config, name, agent.credits)
        state, memories = read_state(self.org, name, before_tick=self.number), load_memories(self.org, name)
        plain_organisation.require_plain_state(name, state, memories, loops)
        reader = ReaderView(self.mail, agent, state.read)
        inbox = build_inbox(reader, limit=settings.inbox_limit, chars=settings.inbox_chars)
        for entry in (*inbox.unread, *inbox.earlier):
            plain_organisation.require_plain_entry(entry.kind, entry.payload, entry.file)
        values = {
            "agent": {"name": name, "title": agent.title}, "tick": self.number,
            "request": None, "thread": [], "asked": [],
            "inbox": [entry.as_json() for entry in inbox.unread],
            "known": [entry.as_json() for entry in inbox.earlier],
            "own": [entry.as_json() for entry in inbox.own_entries],
            "memory": memories.values, "context": [],
            "results": [result for result in state.results if result["tool"] != NOTICE],
            "warnings": [escape_markers(result["output"]) for result in state.results if result["tool"] == NOTICE],
        }  # fmt: skip
        omitted_defaults = {key: getattr(ModelEntry, key) for key in ("images", "context_tokens", "tools_share")}
        return records.TurnStarted(
            agent=name, entries=[entry.id for entry in inbox.unread], read=inbox.mark.as_json(), state=state.as_json(),
            prompt=[{"role": "user", "content": to_line(values)}], schema=None,
            resume=_record_resume(agent), allocation=vars(allocation), max_steps=1,
            model={key: value for key, value in vars(model).items() if (key, value) not in omitted_defaults.items()},
            repairs=settings.defaults.turn.repairs if agent.turn.repairs is None else agent.turn.repairs,
            loops={**vars(loops), "warn_after": min(loops.warn_after, max(loops.stop_after - 1, 2))},
        )  # fmt: skip

    def _record_start(self, start: records.TurnStarted) -> records.TurnStarted:
        """Record what a turn starts from. What all turns of the agent share stands apart: a journal holds it once."""
        plain = start.as_json()
        shared = {"prompt": [], **{key: plain[key] for key in PREFIX_FIELDS if key in plain and key != "prompt"}}
        fields = dump_compact({key: value for key, value in plain.items() if key not in PREFIX_FIELDS})[1:-1]
        self.journal.begin_turn(start.agent, lambda: start, dump_compact(shared), [start.prompt[0]["content"]], fields)
        return start

    def _commit(self, turn: Turn, *, is_replay: bool) -> None:
        """Write a turn's files, then the agent's state, then that the turn is over. Writing twice changes nothing."""
        self.journal.sync()
        for file in turn.files:
            apply_effect(self.org.base, file, is_replay=is_replay)
        write_state(self.org, turn.agent.name, turn.state)
        failed_state = {"state": turn.state.as_json()} if turn.report.status == "failed" else {}
        self.journal.append(records.TurnCommitted(report=turn.report, **failed_state))

    def _remove_old_entries(self) -> None:
        """Remove entries past their retention that every reader was shown. The list is recorded first."""
        files = plain_organisation.find_old_entries(self.org, self.survey, self.number, self.config.org.retention_ticks)
        if files and not any(isinstance(record, records.EntriesExpired) for record in self.journal.records):
            self.journal.append(records.EntriesExpired(files=files), sync=True)
        for file in files:
            fs.remove(self.org.base, file)

    def _advance_counter(self) -> None:
        """Make everything survive power loss with one flush, and move the counter."""
        fs.write_after_sync(self.org.base, paths.TICK_FILE, dump_pretty_flat({"current_tick": self.number + 1}))

    def _report(self) -> TickReport:
        return TickReport(tick=self.number, turns=(*self.reports, *_report_excluded(self.plan)))


def _report_excluded(plan: records.TickStarted) -> list[TurnReport]:
    """Return the reports of the agents that could take no turn."""
    skipped = [TurnReport(agent=name, status="skipped", reason=reason) for name, reason in plan.skipped.items()]
    return [*skipped, *(TurnReport(agent=name, status="failed", reason=text) for name, text in plan.broken.items())]


def _record_resume(agent: Agent) -> Json:
    return {key: value for key, value in agent.as_json.items() if key not in ("instructions", "examples")}


# --- ask and act: a turn as a generator of effects ----------------------------------------------------------------


def take_steps(turn: Turn) -> Generator[Effect, Any, None]:
    """Ask for a reply and carry it out. Its results are shown in the agent's next turn."""
    reply, at = yield from ask_reply(turn, [*turn.start.prompt])
    for new in reply.outbox_entries:
        yield WriteEntry(new, at)
    for call in reply.tool_calls:
        yield CallTool(call, at)
    for update in reply.memory_updates:  # after the tools: of two values for a key, these count
        yield WriteMemory(update, at)
    turn.end_reply(reply)


def ask_reply(turn: Turn, messages: list[Message]) -> Generator[Effect, Any, tuple[contract.TurnReply, str]]:
    """Ask until a reply keeps to the contract; of the last answer, what is valid counts. Return it and its time.

    Raises `ContractError` if nothing is valid.
    """
    unpaid = ""
    for corrections_left in range(turn.start.repairs, -1, -1):
        try:
            answer = yield AskModel(tuple(messages))
        except OutOfCredits as error:
            if not turn.answers:
                raise
            unpaid = f"; no correction: {error.message}"
            break
        try:
            return turn.read_reply("sound"), answer.at
        except ContractError as problem:
            turn.remarks += [f"asked again: {problem}"[:REMARK_CHARS]] if corrections_left else []
            wish = "Answer again with the one JSON object, and nothing else."
            correction = f"That was not a valid reply: {str(problem)[:2000]}\n{wish}"
            messages.append({"role": "assistant", "content": answer.text[:QUOTED_CHARS]})
            messages.append({"role": "user", "content": correction})
    try:
        return turn.read_reply("some"), turn.answers[-1].at
    except ContractError as problem:
        raise ContractError(f"{problem.message}{unpaid}", hint=problem.hint) from problem


class Turn:
    """A turn: performs each effect, and folds its answer into entries, files and results."""

    report: TurnReport
    state: AgentState
    files: Sequence[FileEffect] = ()

    def __init__(self, tick: Tick, agent: Agent, start: records.TurnStarted, past: Sequence[records.Record]) -> None:
        self.tick, self.agent, self.start, self.before = tick, agent, start, AgentState.from_json(start.state)
        replies = [record for record in past if isinstance(record, records.ModelReplied | records.ModelFailed)]
        self._replies = {record.call: record for record in replies}
        self._finished = {record.index: record for record in past if isinstance(record, records.ToolFinished)}
        self.answers: list[records.ModelReplied] = []
        self.entries: dict[str, tuple[contract.NewEntry, OutboxEntry]] = {}
        self.memories: dict[str, contract.MemoryUpdate] = {}
        self.staged: dict[str, FileEffect] = {}
        self.tools: list[ToolUseJson] = []
        self.results, self.remarks = list[Json](), list[str]()
        self.notes = ""
        self.progress = plain_organisation.ProgressCounts(agent.name, self.before, tick.config.org.loops)

    def take(self) -> None:
        """Take the turn to its end. An error of the model ends the turn, not the tick."""
        try:
            self._run(take_steps(self))
            self._end("step_limit" if self.tools else "done")
        except OutOfCredits as error:
            self._end("out_of_credits", error)
        except ContractError as error:
            self._end("bad_reply", error)
        except ProviderError as error:
            self._end("no_answer", error)

    def _run(self, steps: Generator[Effect, Any, None]) -> None:
        answer, failure = None, None
        with contextlib.suppress(StopIteration):
            while True:
                effect = steps.throw(failure) if failure else steps.send(answer)
                try:
                    answer, failure = self._perform(effect), None
                except (OutOfCredits, ProviderError) as error:
                    answer, failure = None, error

    def _perform(self, effect: Effect) -> records.ModelReplied | None:
        match effect:
            case AskModel(messages):
                return self._ask(len(self.answers), messages)
            case CallTool(call, at):
                self._call(len(self.results), call, at)
            case WriteEntry(new, at):
                self._write_entry(new, at)
            case WriteMemory(update, at):
                file = make_memory_effect(self.agent.name, update.key, update.value, at, is_from_reply=True)
                self.staged[file.path_key], self.memories[file.path_key] = file, update
        return None

    def _ask(self, number: int, messages: tuple[Message, ...]) -> records.ModelReplied:
        record = self._replies.get(number)
        record = record or self.tick.journal.append(self._ask_live(number, [*messages]), sync=True)
        if isinstance(record, records.ModelFailed):
            raise errors.restore_error(record.error, record.message)
        self.answers.append(record)
        return record

    def _ask_live(self, number: int, messages: list[Message]) -> records.ModelReplied | records.ModelFailed:
        """Call the model, and return the record of the reply or of the failure."""
        name, tick, began = self.agent.name, self.tick, time.perf_counter()
        model, temperature = tick.config.model(self.agent.model.key), self.agent.model.temperature
        seed = int.from_bytes(blake2b(f"{name}/{tick.number}/{number}".encode(), digest_size=4).digest(), "big") >> 1
        request = Request(
            model.model, messages, model.temperature if temperature is None else temperature, seed=seed, agent=name,
            max_output_tokens=model.max_output_tokens, deadline_s=model.deadline_s, tick=tick.number, step=number,
        )  # fmt: skip
        try:
            check_credits(model, resolve_credits(tick.config, name, self.agent.credits), self.spent)
            reply = call_provider(make_provider(model.provider, model.options, base=tick.org.base), request)
        except errors.AnswerTooLarge:  # it is paid for
            reply = Reply("", output_tokens=request.max_output_tokens, finish="too_large")
        except (OutOfCredits, ProviderError) as error:
            return records.ModelFailed(
                agent=name, call=number, code=error.code, error=errors.error_name(error), message=str(error),
                duration_ms=elapsed_ms(began),
            )  # fmt: skip
        usage, finish = compute_usage(model, messages, reply), "" if reply.finish == "stop" else reply.finish
        details: dict[str, Any] = {
            "model": redact_values(str(reply.model or model.model))[:200], "cached_tokens": usage.cached_tokens,
            "is_estimated": usage.is_estimated, "duration_ms": elapsed_ms(began), "finish": finish,
        }  # fmt: skip
        return records.ModelReplied(
            agent=name, call=number, at=reply.at or timestamp(tick.clock.now()),
            text=redact_values(reply.text[: 2 * contract.REPLY_LIMIT_BYTES]), input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens, credits=usage.credits,
            **{key: value for key, value in details.items() if value},
        )  # fmt: skip

    @property
    def spent(self) -> float:
        """Credits that the agent has spent, those of this turn included."""
        return round(self.before.credits + sum(answer.credits for answer in self.answers), 6)

    def _call(self, index: int, call: contract.ToolCall, at: str) -> None:
        record = self._finished.get(index) or self.tick.journal.append(self._call_live(index, call, at))
        output = _cut(record.output, max(RESULTS_CHARS - sum(len(result["output"]) for result in self.results), 0))
        args = call.args if len(text := dump_compact(call.args).decode()) <= ARGS_CHARS else _cut(text, ARGS_CHARS)
        self.results.append({"tool": call.tool, "args": args, "success": record.success, "output": output})
        use: ToolUseJson = {"tool": call.tool, "success": record.success, "outcome": record.outcome or "ok"}
        code = errors.OUTCOME_CODES[use["outcome"]]
        self.tools.append({**use, "code": code} if code else use)
        self.progress.count_call(call, output=record.output, success=record.success)
        self.staged |= {effect.path_key: effect for effect in map(FileEffect.from_json, record.effects)}

    def _call_live(self, index: int, call: contract.ToolCall, at: str) -> records.ToolFinished:
        """Call a tool, and return the record. A plain tool changes nothing itself: it returns files to write."""
        tick, agent, began = self.tick, self.agent, time.perf_counter()
        context = ToolContext(
            agent=agent, org=tick.org, settings=tick.config.org, now=at, tick=tick.number, index=index,
            staged={path: effect.content for path, effect in self.staged.items() if not effect.removes},
            removed=frozenset(path for path, effect in self.staged.items() if effect.removes),
        )  # fmt: skip
        result = call_tool(call.tool, call.args, context)
        measured: dict[str, Any] = {"duration_ms": duration} if (duration := elapsed_ms(began)) else {}
        return records.ToolFinished(
            agent=agent.name, index=index, tool=call.tool, success=result.success, outcome=result.outcome,
            output=redact_values(result.output), effects=[effect.as_json() for effect in result.effects], **measured,
        )  # fmt: skip

    def read_reply(self, keep: contract.Keep) -> contract.TurnReply:
        """Return the reply in the last answer, or with `keep` "some" what of it is valid. Raises `ContractError`."""
        answer, limit = self.answers[-1], self.agent.turn
        if answer.finish == "too_large":
            raise errors.AnswerTooLarge("the answer was not read to its end and is charged as max_output_tokens")
        reply = contract.parse_reply(
            answer.text, kinds=limit.kinds, max_entries=limit.max_entries, max_calls=None, keep=keep
        )
        if answer.finish != "stop" or len(reply.tool_calls) > limit.max_tool_calls:
            raise plain_organisation.LeftToEngine(f"the reply of {self.agent.name} is cut off or has too many calls")
        return reply

    def _write_entry(self, new: contract.NewEntry, at: str) -> None:
        if any(new == earlier for earlier, _ in self.entries.values()):
            self.remarks.append("outbox_entries: one that is equal to another of the turn was dropped")
            return
        name, tick, plan = self.agent.name, self.tick.number, self.tick.plan
        plain_organisation.require_plain_entry(new.kind, new.payload, f"an entry of {name}")
        entry = OutboxEntry(entry_id(tick, name, len(self.entries)), tick, name, new.kind, new.payload, new.tags, at)
        everybody = {other.lower() for other in (*plan.order, *plan.not_due, *plan.skipped, *plan.broken)}
        if unknown := entry.targets - everybody - {name}:
            raise plain_organisation.LeftToEngine(f"an entry of {name} is for {min(unknown)}, who does not exist")
        self.entries[entry.id] = new, entry

    def end_reply(self, reply: contract.TurnReply) -> None:
        """Keep the notes of a reply, and what was left out of it as a notice for the next turn."""
        if reply.left_out:
            text = f"In your last reply: {'; '.join(reply.left_out)}"
            self.results.append({"tool": NOTICE, "args": {}, "success": False, "output": text[:NOTICE_CHARS]})
        self.remarks += [*reply.remarks, *(f"left out: {reason}"[:REMARK_CHARS] for reason in reply.left_out)]
        self.notes = reply.notes

    def _end(self, end: End, error: LemmingError | None = None) -> None:
        """Set what the turn comes to. A failed turn leaves nothing but its costs."""
        status = "skipped" if end == "out_of_credits" else STATUS_OF[end]
        is_written = status in ("done", "waiting")
        entries = [entry for _, entry in self.entries.values()] if is_written else []
        staged = order_effects(self.staged.values()) if is_written else []
        self.files = [*staged, *map(to_file_effect, entries)]  # entries last: what they mention is there by then
        calls = len(self.tools)
        waits_for = f"{calls} tool result{'s' if calls > 1 else ''} for its next turn" if status == "waiting" else ""
        costs = self._charge(status)
        self.report = TurnReport(
            agent=self.agent.name, status=status, end=end, reason=str(error) if error else waits_for,
            error=errors.error_name(error) if error else "", model=self.answers[-1].model if self.answers else "",
            entries=[{"id": entry.id, "kind": entry.kind, "file": entry.file} for entry in entries],
            tools=self.tools, memory=[update.key for update in self.memories.values() if is_written],
            files=[{"path": effect.path_key, "sha256": effect.digest} for effect in self.files if not effect.removes],
            removed=[effect.path_key for effect in self.files if effect.removes],
            remarks=self.remarks, notes=self.notes, **costs,
        )  # fmt: skip
        self.state.end = "" if end == USUAL_ENDS[status] else end  # the status says the rest: ledgers stay short
        has_answer, has_entries = bool(self.answers), bool(self.entries)
        self.state.loops = self.progress.count_turn(error, self.memories.values(), has_answer, has_entries)
        if is_written:
            self.state.turns, self.state.read = self.before.turns + 1, ReadMark.from_json(self.start.read)
            self.state.results, self.state.in_vain = (*self.results,), self.progress.counts if self.results else {}

    def abandon(self, reason: str) -> None:
        """End a turn that ended the engine too often. The answers on record are paid for."""
        self.answers = [record for record in self._replies.values() if isinstance(record, records.ModelReplied)]
        reason, costs = f"{reason} (config/org.json max_attempts)", self._charge("failed")
        self.report = TurnReport(agent=self.agent.name, status="failed", reason=reason, error="Interrupted", **costs)

    def _charge(self, status: str) -> Json:
        """Set the state to that before the turn with its costs added, and return the costs for the report."""
        keys = ("credits", "input_tokens", "output_tokens", "duration_ms")
        costs = {key: sum(getattr(answer, key) for answer in self.answers) for key in keys}
        self.state = state = self.before.copy()
        state.tick, state.status, state.end, state.in_vain = self.tick.number, status, "", {}
        state.credits, state.unpriced_calls = self.spent, state.unpriced_calls + len(self.answers)
        state.input_tokens += costs["input_tokens"]
        state.output_tokens += costs["output_tokens"]
        state.failed += status == "failed"
        return {"calls": len(self.answers), **costs, "credits": float(costs["credits"])}


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[:room]}\n[cut: {room} of {len(text)} characters are shown]"


def main(arguments: Sequence[str]) -> int:
    """Run a tick in the folder that the arguments name, print what became of it, and return the exit status."""
    folders = [argument for argument in arguments if argument != "--trust"]
    if len(folders) != 1 or folders[0].startswith("-"):
        print("usage: python -m lemming.kernel.line [--trust] FOLDER", file=sys.stderr)
        return 2
    try:
        plain_organisation.require_trusted(folders[0], is_trusted="--trust" in arguments)
        report = run_tick(folders[0])
    except LemmingError as error:
        print(f"{error.code}: {error}", file=sys.stderr)
        return error.exit_status
    for turn in report.turns:
        print(f"tick {report.tick}  {turn.agent}  {turn.status}  {turn.reason}".rstrip())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
