"""Gates at what a turn writes: its entries and its memories. Pure over the turn's recorded answers.

Whatever a turn writes for others comes by here, also what its tools want written for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from lemming.capabilities.gates.checks import asking
from lemming.capabilities.gates.format import GATES, Gate, Rule
from lemming.capabilities.gates.looking import Looked, digest_of, look, nobody_judged, redacted, rules_at
from lemming.kernel.base import paths
from lemming.kernel.base.contract import NewEntry, ToolCall
from lemming.kernel.base.errors import StoppedByGate, ToolError
from lemming.kernel.files.documents import value_of
from lemming.kernel.files.effects import FileEffect
from lemming.kernel.mail.references import named_in
from lemming.kernel.memory import decode_memory, memory_effect
from lemming.kernel.messages import OutboxEntry, decode_entry, entry_effect, names_in, targets_in
from lemming.kernel.tools import ToolResult
from lemming.kernel.turn.places import Asking, Found
from lemming.kernel.turn.results import OUTBOX_ENTRIES

if TYPE_CHECKING:
    from lemming.capabilities.gates.judging import GateJudges
    from lemming.kernel.turn.draft import Draft


class OutGates:
    """The gates of one turn at what it writes; what they say is kept in the draft."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._given = draft.inputs.given[GATES]
        rules = [Rule(plain["line"], value_of(Gate, plain["gate"])) for plain in self._given["rules"]]
        self._rules = rules_at(rules, "out")
        self._judges: GateJudges | None = None
        if any(rule.gate.by for rule in rules):
            from lemming.capabilities.gates.judging import GateJudges  # only where there are any

            self._judges = GateJudges(draft, {rule.line: rule.gate for rule in rules})
        self._earlier = set(self._given.get("said_before", ()))
        self._asked = 0

    def look_at_entry(self, new: NewEntry, at: str, *, is_approved: bool = False) -> NewEntry | None:
        """Return an entry as it may be written; None, and a result that says why, where it may not.

        One that a gate asks about waits for a person; one that is approved passes the gates that ask.
        """

        def facts(payload: Any) -> dict[str, Any]:
            text, target = payload.get("text"), payload.get("target")
            told = {"what": "entry", "kind": new.kind, "tags": new.tags, "text": text, "target": target}
            told["leaves"] = self._leaves(new.kind, payload)
            return {**told, **self._facts(), "payload": payload}

        rules = [rule for rule in self._rules if not (is_approved and rule.gate.then == "ask")]
        looked = self._look(new.payload, facts, f"entry of kind {new.kind}", rules)
        of_texts = [rule for rule in rules if _is_about_texts(rule.gate)] if new.tags else []
        if of_texts and looked.then in ("pass", "ask"):
            payload = looked.content
            of_tags = self._look(new.tags, lambda _: facts(payload), f"tags of {new.kind}", of_texts)
            new = new._replace(tags=of_tags.content)
            if not of_tags.passes and (looked.passes or of_tags.then != "ask"):
                looked = of_tags._replace(content=payload)
        if looked.passes:
            self._earlier.add(digest_of(new.payload))
            return new._replace(payload=looked.content)
        if looked.then == "ask":
            for asks in self._draft.seams.asks:
                asks(new._replace(payload=looked.content), self._asking(looked), at)
        else:
            told = {"kind": new.kind, "target": new.payload.get("target")}
            self._draft.add_result(OUTBOX_ENTRIES, told, ToolResult(False, looked.told(), outcome="refused"))
        return None

    def _asking(self, looked: Looked) -> Asking:
        said = looked.last
        gate = next(rule.gate for rule in self._rules if rule.line == said.line)
        expires = () if gate.expires is None else (gate.expires,)
        return Asking(said.line, said.why, gate.persons or None, expires)

    def _leaves(self, kind: str, payload: dict[str, Any]) -> bool:
        """Return whether a channel would take an entry out of the organisation: addressed, or as an answer.

        An answer to whatever is not known to be an agent's request counts as one that would.
        """
        inputs, task = self._draft.inputs, self._draft.task
        channels = self._given.get("channels", ())
        if not channels or not targets_in(payload).isdisjoint(channels):
            return bool(channels)
        if kind != "response":
            return False
        askers = dict(inputs.open_requests)
        if task and task.request:
            askers |= {task.request: task.asker, task.id: task.asker}
        known = {name: asker for it, asker in askers.items() for name in (it, it.rpartition("_")[2])}
        return any(it not in known or known[it] in channels for it in named_in(payload.get("reply_to")))

    def look_at_memory(self, key: str, value: Any) -> Any:
        """Return a value as it may be remembered; raise `ToolError` that says why it may not."""

        def facts(value: Any) -> dict[str, Any]:
            text = value if isinstance(value, str) else None
            told = {"what": "memory", "key": key, "value": value, "text": text}
            return {**told, **self._facts()}

        looked = self._look(value, facts, f"memory {key}", self._rules)
        if not looked.passes:
            raise ToolError(f'memory "{key}": {looked.told()}')
        self._require_name(key, partial(facts, looked.content))
        self._earlier.add(digest_of(value))
        return looked.content

    def _require_name(self, key: str, facts: Callable[[], dict[str, Any]]) -> None:
        """Raise `ToolError` for a memory whose key a pattern fits: whoever reads memories sees keys."""
        rules = [rule for rule in self._rules if _is_about_texts(rule.gate)]
        looked = self._look(key, lambda _: facts(), f"the key of memory {key}", rules) if rules else None
        if looked and not looked.passes:
            raise ToolError(f'memory "{key}": its key: {looked.told()}')
        if looked and looked.content != key:
            why = f"a gate redacts something in its key ({looked.verdicts[-1].line}): use another key"
            raise ToolError(f'memory "{looked.content}": {why}')

    def look_at_notes(self, notes: str) -> str:
        """Return the notes of a reply without what a gate redacts: prompts, logs and screens show them."""
        for rule in self._rules if self._given.get("notes") else ():
            if rule.gate.redact:
                notes = redacted(rule.gate.redact, notes)
        return notes

    def look_at_effects(self, effects: Iterable[FileEffect], at: str) -> tuple[FileEffect, ...]:
        """Return the files that a tool wants written, its memories and entries as they may be written."""
        return tuple(self._looked_at(effects, at))

    def _looked_at(self, effects: Iterable[FileEffect], at: str) -> Iterator[FileEffect]:
        name = self._draft.inputs.agent.name
        folder = f"{paths.memory_folder(name)}/"
        for effect in effects:
            if entry := _parse_entry(effect, name):
                new = NewEntry(entry.kind, entry.payload, entry.tags)
                may = self.look_at_entry(new, at)
                if may is not None:
                    yield (
                        effect
                        if may == new
                        else entry_effect(replace(entry, payload=may.payload, tags=[*may.tags]))
                    )
                continue
            if effect.root or effect.removes or not effect.path.startswith(folder):
                yield effect
                continue
            key = effect.path.removeprefix(folder).removesuffix(".json")
            value = decode_memory(effect.content, effect.place)
            try:
                passed = self.look_at_memory(key, value)
            except ToolError as error:
                self._draft.add_result(
                    "memory_update", {"key": key}, ToolResult(False, str(error), outcome="refused")
                )
                continue
            yield effect if passed == value else memory_effect(name, key, passed, at)

    def taken_back(self) -> None:
        """Forget what was taken back: it may be written again."""
        kept = {digest_of(entry.payload) for entry in self._draft.entries}
        self._earlier = {*self._given.get("said_before", ()), *kept}

    def _facts(self) -> dict[str, Any]:
        draft, trust = self._draft, self._draft.trust
        told = {"agent": draft.inputs.agent.name, "tick": draft.inputs.tick}
        return {**told, "trust": trust} if trust else told

    def _look(self, content: Any, facts: Any, about: str, rules: Sequence[Rule]) -> Looked:
        looked = look(
            rules,
            content,
            facts,
            about=about,
            earlier=self._earlier,
            check=self._ask,
            judge=self._judge,
        )
        self._draft.verdicts += [verdict.as_json() for verdict in looked.verdicts]
        if looked.then == "stop":
            self._draft.stop(StoppedByGate(looked.told()[:2000]))
        return looked

    def judged_call(self, call: ToolCall) -> ToolCall:
        """Return a call with what judges say of it."""
        return self._judges.judged_call(call) if self._judges else call

    def judged_result(self, call: ToolCall, result: ToolResult) -> ToolResult:
        """Return what a call gave as judges let it be shown."""
        return self._judges.judged_result(call, result) if self._judges else result

    def _judge(self, rule: Rule, seen: dict[str, Any]) -> Found | None:
        return self._judges.ask(rule, seen) if self._judges else nobody_judged(rule, seen)

    def _ask(self, name: str, seen: dict[str, Any]) -> Found | None:
        number, self._asked = self._asked, self._asked + 1
        return self._draft.source.check(number, name, seen, asking)


def _is_about_texts(gate: Gate) -> bool:
    """Return True if a gate looks at tags too: its patterns do, and a gate that lets all of an entry pass."""
    return gate.finding in ("deny", "redact") or (gate.then == "pass" and not gate.finding)


def _parse_entry(effect: FileEffect, agent_name: str) -> OutboxEntry | None:
    """Return the entry that a tool wants written into the agent's outbox; None for any other file."""
    folder, _, file_name = effect.path.rpartition("/")
    if effect.root or effect.removes or folder != paths.outbox_folder(agent_name):
        return None
    name = next(iter(names_in(agent_name, [file_name])), None)
    return decode_entry(name, effect.content) if name else None
