"""A turn's draft: what it has come to so far, how a reply is staged, and how it all ends.

Nothing here touches the disk or reads a clock. Which questions are asked, and when it is over, is for a
strategy to say (`lemming.turn.loop`); whatever comes from outside comes from its `Answers`.
"""

from __future__ import annotations

from typing import Any, Literal

from lemming.contract import Keep, NewEntry, ToolCall, TurnReply, parse_reply
from lemming.errors import ContractError, LemmingError, OutOfCredits, ToolError, name_of
from lemming.files.effects import FileEffect, writes_first
from lemming.journal.begun import Begun
from lemming.journal.ledger import AgentState
from lemming.llm.pricing import has_reached_soft_cap
from lemming.memory import memory_effect
from lemming.messages import WAITING_FROM, OutboxEntry, entry_effect, entry_id
from lemming.plans.format import PROVIDER
from lemming.plans.proposals import proposal_in
from lemming.providers import Message, require_reply
from lemming.report import Status, ToolUsed, TurnReport
from lemming.times.spoken import moment_of
from lemming.tools import ToolResult
from lemming.turn.attachments import attach
from lemming.turn.results import RESULTS_CHARS, as_shown, newest, tool_used
from lemming.turn.serving import MOST_FAILURES, MOST_TURNS, OWN_ACCOUNT, answering
from lemming.turn.spending import spending, state_after_spending
from lemming.turn.team import TeamTool, team_tools
from lemming.turn.values import Answer, Answers, TurnInputs, TurnOutcome


class Draft:
    """What one turn has come to so far.

    `answers`: those of the model. `staged`: files to be written, by place; `settled`: those written already,
    before a call that reached outside. `results`: those of tool calls, the first `shown` of which the model
    has seen. `accepted`: how many replies were acted on.
    """

    def __init__(self, inputs: TurnInputs, source: Answers) -> None:
        self.inputs, self.source, self.task = inputs, source, inputs.task
        self.answers: list[Answer] = []
        self.entries: list[OutboxEntry] = []
        self.staged: dict[str, FileEffect] = {}
        self.settled: dict[str, FileEffect] = {}
        self.memory: dict[str, FileEffect] = {}
        self.results: list[dict[str, Any]] = []
        self.used: list[ToolUsed] = []
        self.outside: list[dict[str, Any]] = []
        self.passed_on: dict[str, float] = {}  # by the resume that says so
        self.shown = self.accepted = 0
        self.remarks: list[str] = []
        self.notes = ""
        self.team = team_tools(inputs.agent)
        self.asked: dict[str, int] = {}  # entries that tools of the team wrote, with the number of the result
        self.is_handed_on = False
        self.gave_nothing = False  # of a turn that failed: the model answered, and it was of no use

    @property
    def unshown(self) -> list[dict[str, Any]]:
        """The results that the model has not been shown."""
        return self.results[self.shown :]

    @property
    def is_answered(self) -> bool:
        """Whether the request that the turn is for has its answer."""
        return self.task is not None and self.task.is_answered(self.entries)

    @property
    def may_rest(self) -> bool:
        """Whether the turn may say nothing, and wait for something outside: a plan does."""
        return self.inputs.model.provider == PROVIDER

    def conclude(self, status: Status, error: LemmingError | None) -> Status:
        """See to it that a turn for a request answers it, unless there is something to wait for."""
        task = self.task
        if task is None or not task.request or status == "skipped":
            return status
        if status == "failed":
            self.gave_nothing = isinstance(error, ContractError) and bool(self.answers)
            if not (self.gave_nothing and task.begun.failures + 1 >= MOST_FAILURES):
                return status
            self.staged, self.memory = {}, {}
            self.entries = self._given_up(f"{MOST_FAILURES} turns came to nothing: {error}")
        if self.is_handed_on:
            self.entries = task.with_amounts(self.entries, self.cost)
            return "done"
        if self.may_rest:
            self.entries = task.with_amounts(self.entries, self.cost)
            return "done" if self.is_answered else "waiting"
        if not self.is_answered and status == "done" and not task.is_at_work(self.entries):
            self.entries = task.with_answer(self.entries) or self._given_up("no answer was given")
        if not self.is_answered and task.begun.turns + 1 >= MOST_TURNS:
            self.entries = self._given_up(f"no answer was given in {MOST_TURNS} turns")
        self.entries = task.with_amounts(self.entries, self.cost)
        return "done" if self.is_answered else "waiting"

    def _given_up(self, why: str) -> list[OutboxEntry]:
        """Return the entries with one that says that the request has failed."""
        assert self.task, "only a request is given up"
        new, tick, name = self.task.failed(why), self.inputs.tick, self.inputs.agent.name
        identity = entry_id(tick, name, len(self.entries))
        at = self.answers[-1].at if self.answers else self.task.at
        self.remarks.append(f"the request has failed: {why}"[:500])
        return [*self.entries, OutboxEntry(identity, tick, name, new.kind, new.payload, new.tags, at)]

    @property
    def cost(self) -> float:
        """The credits that the turn has spent so far."""
        return sum(answer.credits for answer in self.answers)

    def give_up(self) -> Literal["done"]:
        """End a turn for a request on which no more may be spent: it has failed, and no model is asked."""
        assert self.task, "only a request has a budget"
        self.entries = self._given_up(f"its budget of {self.task.budget:g} credits is used up")
        return "done"

    def ask(self, messages: list[Message]) -> Answer:
        """Ask the model once. Raises what stood in the answer's place, as `Answers.ask`."""
        if self.task and self.task.budget is not None and self.task.spent + self.cost >= self.task.budget:
            raise OutOfCredits(f"the request's budget of {self.task.budget:g} credits is used up")
        self.answers.append(self.source.ask(len(self.answers), messages))
        return self.answers[-1]

    def read(self, answer: Answer, *, keep: Keep = "all") -> TurnReply:
        """Return the reply that an answer is; raise `ContractError` for what is none."""
        require_reply(answer.finish)
        limits = self.inputs.agent.turn
        kinds = limits.kinds if self.task is None else [*limits.kinds, *{"response"}.difference(limits.kinds)]
        try:
            reply = parse_reply(answer.text, kinds=kinds, max_entries=limits.max_entries, keep=keep)
            is_asked = self.task is not None and self.task.request and keep == "all" and not self.may_rest
            if is_asked and not (reply.outbox_entries or reply.tool_calls or self.entries):
                raise ContractError("the request is not answered: write one entry of kind response")
            return reply
        except ContractError as error:
            if answer.finish == "length":
                cut_off = f"the reply was cut off at the token limit; be shorter ({error})"
                raise ContractError(cut_off) from error
            raise

    def act(self, reply: TurnReply) -> None:
        """Stage what a reply asks for: entries, tool calls, memories. It was shown all results so far."""
        self.shown, self.accepted = len(self.results), self.accepted + 1
        first, at, room = len(self.entries), self.answers[-1].at, self.room
        if len(reply.outbox_entries) > room:
            self.remarks.append(f"outbox_entries: {len(reply.outbox_entries) - room} beyond the turn's limit")
        for new in reply.outbox_entries[:room]:
            self.write(new, at)
        for call in reply.tool_calls:
            if self.is_handed_on:
                self.remarks.append(f"{call.tool}: not called, the request was handed on")
            else:
                self.use(call, at)
        for update in reply.memory_updates:  # after the tools: of two values for one key, this one holds
            self.stage_memory(update.key, update.value, at)
        attach(self, first, at)
        if reply.left_out:
            self.add_result("reply", {}, ToolResult(False, f"left out: {'; '.join(reply.left_out)}"))
        self.remarks += [*reply.remarks, *(f"left out: {why}"[:500] for why in reply.left_out)]
        self.notes = reply.notes or self.notes

    @property
    def room(self) -> int:
        """How many entries the turn may still write."""
        return self.inputs.agent.turn.max_entries - len(self.entries)

    def write(self, new: NewEntry, at: str) -> OutboxEntry | None:
        """Stage an entry, with what the engine knows of it; for what is none, say why in a result."""
        name, tick = self.inputs.agent.name, self.inputs.tick
        if self.task and "hands_on" not in new.payload:
            new = self.task.fill_in(new, tick, name)
        new = answering(new, self.inputs.open_requests)
        first = WAITING_FROM if self.waits_until(new.payload, at) else 0
        identity = entry_id(tick, name, first + len(self.entries))
        entry = OutboxEntry(identity, tick, name, new.kind, new.payload, new.tags, at)
        is_asked = new.kind == "request" and "hands_on" not in new.payload
        if self.task and is_asked and (why := self.task.why_not(name, entry.targets)):
            self.add_result("outbox_entries", {"target": sorted(entry.targets)}, ToolResult(False, why))
            return None
        self.entries.append(entry)
        return entry

    def delegate(self, call: ToolCall, at: str) -> None:
        """Ask one of the team, or hand the request on to it: stage the entry, or say why there is none."""
        tool = self.team[call.tool]
        try:
            args = tool.check(call.args)
            if why := self._why_not(tool):
                raise ToolError(why)
        except ToolError as error:
            self.add_result(call.tool, call.args, ToolResult(False, str(error)))
            return
        message = args.pop("message")
        if tool.hands_on:
            assert self.task, "only a request is handed on"
            self.write(self.task.hand_on(message, tool.target, self.inputs.tick), at)
            self.is_handed_on = True
            return
        path = None if self.task else [self.inputs.agent.name]
        further = {"deadline": args.get("deadline"), "join": args.get("wait"), "path": path}
        payload = {key: value for key, value in further.items() if value is not None}
        entry = self.write(NewEntry("request", {"text": message, "target": tool.target, **payload}, []), at)
        if entry is not None:
            self.add_result(call.tool, call.args, ToolResult(True))
            self.asked[entry.identity] = len(self.results)

    def _why_not(self, tool: TeamTool) -> str:
        """Return why one of the team cannot be asked now, or handed the request; empty when it can."""
        team, task, name = self.inputs.agent.team, self.task or OWN_ACCOUNT, self.inputs.agent.name
        assert team, "its tools follow from it"
        if tool.name in self.inputs.out_of_reach:
            return self.inputs.out_of_reach[tool.name]
        if not self.room:
            return f"the turn may write no more than {self.inputs.agent.turn.max_entries} entries"
        if tool.hands_on:
            if not task.request:
                return "nothing was asked of you that could be handed on"
            return f"refused: it was handed on {task.hops} times" if task.hops >= team.max_hops else ""
        if len(task.path) + 1 >= team.max_depth:
            return f"refused: {len(task.path) + 1} agents wait for each other already; answer it yourself"
        if len(task.begun.asked) + len(self.asked) >= team.max_asked:
            return f"refused: {team.max_asked} questions have been asked for it; answer with what you have"
        return task.why_not(name, {tool.target})

    def waits_until(self, payload: dict[str, Any], at: str) -> str:
        """Return the moment to come that an entry is to wait for; empty when it is to be shown as others."""
        moment = moment_of(payload.get("not_before"))
        if "not_before" in payload and not moment:
            why = "payload.not_before is no moment (write 2026-12-01T12:00:00Z): the entry is shown at once"
            self.add_result("outbox_entries", {}, ToolResult(False, why))
        return moment if moment > at else ""

    def stage_memory(self, key: str, value: Any, at: str) -> None:
        """Stage a memory, or tell the model why it is not kept."""
        try:
            if key in self.inputs.damaged:
                raise ToolError(f'memory "{key}": its file is damaged; a person must repair or remove it')
            effect = memory_effect(self.inputs.agent.name, key, value, at, is_from_reply=True)
        except ToolError as error:
            self.remarks.append(f"not kept: {error}"[:500])
            self.add_result("memory_update", {"key": key}, ToolResult(False, str(error)))
        else:
            place = effect.place
            self.memory[place] = self.staged[place] = effect

    def use(self, call: ToolCall, at: str) -> None:
        """Call a tool, and stage the files that it wants written."""
        if call.tool in self.team:
            self.delegate(call, at)
            return
        index, staged = len(self.results), dict(self.staged)
        result = self.source.use(index, call, at, staged)
        self.add_result(call.tool, call.args, result)
        if self.source.reached_outside(index):  # they are written, and were the tool's to change
            self.settled.update(staged)
            self.staged.clear()
            self.outside.append(self.results[-1])
            if result.outcome == "interrupted":
                self.remarks.append(f"{call.tool}: {result.output}")
        for effect in result.effects:
            self.staged[effect.place] = effect
            if result.passed_on:
                self.passed_on[effect.place] = result.passed_on
        proposed = proposal_in(call) if result.success else None
        for new in (*result.entries[: self.room], *([proposed] if proposed else [])):
            self.write(new, at)

    def add_result(self, tool: str, args: dict[str, Any], result: ToolResult) -> None:
        """Add a result to those that the model is shown next."""
        room = max(RESULTS_CHARS - sum(len(result["output"]) for result in self.unshown), 0)
        self.results.append(as_shown(tool, args, result, room))
        if tool not in self.team:
            self.used.append(tool_used(tool, result))

    def end(self, status: Status, error: LemmingError | None = None) -> TurnOutcome:
        """Add everything up. A turn that failed writes nothing but what it spent and what it must be told."""
        status = self.conclude(status, error)
        is_applied = status in ("done", "waiting")
        entries = tuple(self.entries) if is_applied else ()
        staged = writes_first(self.staged.values())
        effects = (*staged, *map(entry_effect, entries)) if is_applied else ()
        used = spending(self.answers)
        return TurnOutcome(
            report=self.report(status, error, entries, effects, used),
            state=self.state_after(status, is_applied, used),
            state_if_unwritten=lambda: self.state_after("failed", False, used, is_maybe_written=True),
            entries=entries,
            effects=effects,
        )

    def report(
        self,
        status: Status,
        error: LemmingError | None,
        entries: tuple[OutboxEntry, ...],
        effects: tuple[FileEffect, ...],
        used: dict[str, Any],
    ) -> TurnReport:
        """Return the report of the turn."""
        return TurnReport(
            agent=self.inputs.agent.name,
            status=status,
            reason=str(error) if error else self.waiting_reason(status),
            error=name_of(error) if error else "",
            model=self.answers[-1].model if self.answers else "",
            entries=[{"id": entry.id, "kind": entry.kind, "file": entry.file} for entry in entries],
            tools=self.used,
            memory=[
                place.rsplit("/", 1)[-1].removesuffix(".json")
                for place in self.memory
                if effects or place in self.settled
            ],
            files=[
                {"path": effect.place, "sha256": effect.digest} for effect in effects if not effect.removes
            ],
            removed=[effect.place for effect in effects if effect.removes],
            written_ahead=sorted(self.settled),
            remarks=self.remarks,
            notes=self.notes,
            request=self.task.request if self.task else "",
            **used,
        )

    def waiting_reason(self, status: Status) -> str:
        """Return what a turn that waits is waiting for."""
        if status != "waiting":
            return ""
        if open_asked := [asked for begun in self.requests_after()[1][-1:] for asked in begun.open]:
            return f"waits for {', '.join(sorted({asked.to for asked in open_asked}))}"
        if not self.unshown:
            return "the request is not answered yet"
        count = len(self.unshown)
        return f"{count} tool result{'s' if count > 1 else ''} for its next turn"

    def state_after(
        self, status: Status, is_applied: bool, used: dict[str, Any], *, is_maybe_written: bool = False
    ) -> AgentState:
        """Return the agent's state after the turn."""
        inputs, holds_all = self.inputs, is_applied or is_maybe_written
        passed_on = [self.passed_on[place] for place in self.passed_on if holds_all or place in self.settled]
        state = state_after_spending(inputs, self.answers, used, status)
        if is_applied:
            state.turns += 1
            state.read = inputs.read
            state.results = () if self.task or self.asked else tuple(self.unshown)
            state.serving, state.requests = self.requests_after()
            state.inputs = self.fingerprint_after()
            state.expired_unread = 0
        else:  # what happened outside has happened: the next prompt must say so
            state.results = newest((*state.results, *self.outside))
            if self.task and status == "failed":
                before, counts = inputs.state.requests, self.gave_nothing
                state.requests = self.task.after_failure(before, self.cost, counts=counts)
        state.passed_on = round(state.passed_on + sum(passed_on), 6)
        if state.soft_cap_warned or inputs.warned:
            state.soft_cap_warned = has_reached_soft_cap(inputs.allocation, state.credits)
        return state

    def requests_after(self) -> tuple[str, tuple[Begun, ...]]:
        """Return the request that the turn was for, and those that are begun and open after it."""
        before, calls = self.inputs.state.requests, self.asked_now()
        if self.task is None:
            own = [entry for entry in self.entries if entry.identity in calls]
            asked = (OWN_ACCOUNT.after(own, self.unshown, calls),) if own else ()
            return "", (*self.still_open(before), *asked)
        task = self.task
        others = tuple(begun for begun in before if begun.key != task.begun.key)
        is_over = self.is_answered or self.is_handed_on if task.request else not self.unshown
        after = () if is_over else (task.after(self.entries, self.unshown, calls, self.cost),)
        return task.request, (*others, *after)

    def still_open(self, before: tuple[Begun, ...]) -> tuple[Begun, ...]:
        """Return what an agent has begun, with the requests that this turn was shown and did not answer."""
        if not self.inputs.open_requests:
            return before
        answered = {entry.payload.get("reply_to") for entry in self.entries if entry.kind == "response"}
        shown = (it for it in self.inputs.open_requests if it.rpartition("_")[2] not in answered)
        begun = (it for it in before if it.says_anything)
        return (*begun, *(Begun(request=identity) for identity in shown))

    def asked_now(self) -> dict[str, int]:
        """Return which of the results not shown yet, from 1, the answers to entries will be."""
        return {entry: place - self.shown for entry, place in self.asked.items() if place > self.shown}

    def fingerprint_after(self) -> dict[str, Any] | None:
        """Return the fingerprint of what the agent's next turn would read if nobody else changed anything."""
        if self.inputs.fingerprint is None:
            return None
        memory = dict(self.inputs.fingerprint["memory"])
        prefix = f"agents/{self.inputs.agent.name}/memory/"
        for place, effect in {**self.settled, **self.staged}.items():
            if place.startswith(prefix):
                memory[place.removeprefix(prefix).removesuffix(".json")] = effect.digest
        context = {
            place: self.staged[place].digest if place in self.staged else digest
            for place, digest in self.inputs.fingerprint["context"].items()
        }
        return {**self.inputs.fingerprint, "memory": dict(sorted(memory.items())), "context": context}
