"""Gates at what a turn is shown: entries, memories, files, results of earlier calls."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lemming.capabilities.gates.checks import asking
from lemming.capabilities.gates.format import Rule
from lemming.capabilities.gates.keys import rules_for
from lemming.capabilities.gates.looking import Looked, digest_of, look, rules_at
from lemming.kernel.agents import Agent
from lemming.kernel.base import paths
from lemming.kernel.base.errors import StoppedByGate
from lemming.kernel.mail.inbox import Inbox
from lemming.kernel.mail.task import Ended, Task
from lemming.kernel.memory import Memories
from lemming.kernel.messages import OutboxEntry, read_outbox_entries
from lemming.kernel.turn.opening import Surroundings
from lemming.kernel.turn.parts import trust_words
from lemming.kernel.turn.places import LetsIn, ToShow, Words

SAID_BEFORE = 200
"""So many of an agent's newest entries count where a gate asks for what is new."""
WITHHELD = "withheld"
"""The key of a payload that says why gates do not show the rest of it."""


def nobody(entry: OutboxEntry) -> bool:
    """Return that nobody let an entry in."""
    return False


class InGates:
    """The gates of one turn at what it is shown; `verdicts` is what they said."""

    def __init__(
        self,
        rules: Sequence[Rule],
        agent: Agent,
        tick: int,
        plugins: Sequence[str],
        words: Words | None,
        channels: Collection[str] = (),
        lets_in: LetsIn = nobody,
    ) -> None:
        self._lets_in, self._channels = lets_in, channels
        self._rules, self._agent, self._tick, self._words = rules, agent, tick, words
        self._ask = asking(tuple(plugins))
        self._earlier: set[str] = set()
        self._entries: dict[str, OutboxEntry] = {}
        self._results: dict[int, tuple[Mapping[str, Any], Mapping[str, Any]]] = {}
        self.verdicts: list[dict[str, Any]] = []

    def inbox(self, inbox: Inbox) -> Inbox:
        """Return an inbox as it may be shown."""
        return replace(inbox, unread=[*map(self.entry, inbox.unread)], known=[*map(self.entry, inbox.known)])

    def task(self, task: Task) -> Task:
        """Return what a turn is for as it may be shown."""
        return task._replace(
            request=self.entry(task.request) if task.request else None,
            thread=[*map(self.entry, task.thread)],
            asked=[*map(self._ended, task.asked)],
        )

    def _ended(self, ended: Ended) -> Ended:
        return ended._replace(answer=self.entry(ended.answer) if ended.answer else None)

    def entry(self, entry: OutboxEntry) -> OutboxEntry:
        """Return an entry of another as it may be shown; each is looked at once."""
        if entry.agent == self._agent.name:
            return entry
        # An entry may stand in several places of one prompt: it is looked at, and told of, once.
        if entry.identity not in self._entries:
            self._entries[entry.identity] = self._looked_at(entry)
        return self._entries[entry.identity]

    def asks_about(self, entry: OutboxEntry) -> Rule | None:
        """Return the gate that wants a person to let an entry in; None where none does."""
        looked = look(
            self._rules, entry.payload, self._facts_of(entry), about=entry.identity, check=self._ask
        )
        if looked.then != "ask":
            return None
        return next(rule for rule in self._rules if rule.line == looked.last.line)

    def _facts_of(self, entry: OutboxEntry) -> Callable[[Any], dict[str, Any]]:
        def facts(payload: Any) -> dict[str, Any]:
            told: dict[str, Any] = {"from": entry.agent, "kind": entry.kind, "tags": entry.tags}
            told |= {"id": entry.id, "channel": entry.agent in self._channels}
            trust = self._trust(self._words.of_entry(entry)) if self._words else {}
            told = {**self._facts("entry"), **told, **trust}
            return {**told, "text": payload.get("text"), "payload": payload}

        return facts

    def _looked_at(self, entry: OutboxEntry) -> OutboxEntry:
        rules = None
        if self._lets_in(entry):
            rules = [rule for rule in self._rules if rule.gate.then != "ask"]
        looked = self._look(entry.payload, self._facts_of(entry), f"entry {entry.identity}", rules)
        if looked.passes:
            return entry if looked.content == entry.payload else replace(entry, payload=looked.content)
        target: dict[str, Any] = {
            key: entry.payload[key] for key in ("target", "reply_to") if key in entry.payload
        }
        # The tags are the author's words, too.
        return replace(entry, payload={**target, WITHHELD: looked.told()}, tags=[])

    def memories(self, memories: Memories) -> Memories:
        """Return memories as they may be shown."""
        values = {}
        words = self._words.of_memories(self._agent.name, memories) if self._words else {}
        for key, value in memories.values.items():
            told = {"key": key, **self._trust(words.get(key))}
            values[key] = self._value("memory", told, value, f"memory {key}")
        return memories._replace(values=values)

    def files(self, context: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return files, each with its label, as they may be shown."""
        return [(it, self._value("file", {"label": it}, text, f"file {it}")) for it, text in context]

    def results(self, results: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Return results of earlier calls as they may be shown."""
        return [*map(self._as_passed, results)]

    def _as_passed(self, result: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a result as it may be shown; the very same one is looked at once."""
        if id(result) not in self._results:
            # The result is kept with what passed of it, or another could come to have its `id`.
            self._results[id(result)] = result, {**result, "output": self._result(result)}
        return self._results[id(result)][1]

    def _result(self, result: Mapping[str, Any]) -> Any:
        told = {"tool": result["tool"], **self._trust(result.get("trust"))}
        return self._value("result", told, result["output"], f"result of {result['tool']}")

    def _trust(self, word: str | None) -> dict[str, str]:
        return {"trust": self._words.known(word or self._words.usual)} if self._words else {}

    def _value(self, what: str, told: dict[str, Any], value: Any, about: str) -> Any:
        def facts(value: Any) -> dict[str, Any]:
            text = value if isinstance(value, str) else None
            return {**self._facts(what), **told, "value": value, "text": text}

        looked = self._look(value, facts, about)
        return looked.content if looked.passes else f"[{WITHHELD}: {looked.told()}]"

    def _facts(self, what: str) -> dict[str, Any]:
        return {"what": what, "agent": self._agent.name, "tick": self._tick}

    def _look(
        self,
        content: Any,
        facts: Callable[[Any], dict[str, Any]],
        about: str,
        rules: Sequence[Rule] | None = None,
    ) -> Looked:
        asked = self._rules if rules is None else rules
        looked = look(asked, content, facts, about=about, earlier=self._earlier, check=self._ask)
        self._earlier.add(digest_of(content))
        self.verdicts += [verdict.as_json() for verdict in looked.verdicts]
        if looked.then == "stop":
            raise StoppedByGate(looked.told(), where=paths.agent_folder(self._agent.name))
        return looked


def in_gates(now: Surroundings, agent: Agent, rules: Sequence[Rule], lets_in: LetsIn = nobody) -> InGates:
    """Return these gates, as one turn asks them."""
    settings = now.config.org
    words = trust_words(now, agent)
    channels = now.config.channels_among(now.mail.resumes) if now.config.has_channels else ()
    return InGates(rules, agent, now.tick, settings.plugins, words, channels, lets_in)


def look_at_shown(
    now: Surroundings, agent: Agent, shown: ToShow, lets_in: LetsIn
) -> tuple[ToShow, dict[str, Any]]:
    """Return what a turn may be shown, and what its record says of gates. Raises `StoppedByGate`."""
    settings = now.config.org
    rules = rules_for(agent, settings)
    of_writing = rules_at(rules, "out")
    told: dict[str, Any] = {"rules": [rule.as_json() for rule in of_writing]}
    if of_writing and now.config.has_channels:
        told["channels"] = sorted(now.config.channels_among(now.mail.resumes))
    if any(rule.gate.by for rule in rules):
        from lemming.capabilities.gates.judging import recorded_rules  # only where there are any

        told["rules"] = recorded_rules(now, agent, rules)
    if any(rule.gate.dedupe for rule in of_writing):
        own = read_outbox_entries(now.org.base, agent.name, SAID_BEFORE)
        told["said_before"] = [digest_of(entry.payload) for entry in own]
    if not (of_showing := rules_at(rules, "in")):
        return shown, told
    gates = in_gates(now, agent, of_showing, lets_in)
    task = gates.task(shown.task) if shown.task else None

    def tell(last: Task | None) -> Sequence[Mapping[str, Any]]:
        return gates.results(shown.tell(_as_answered(shown.task, last)))

    passed = ToShow(
        task=task,
        inbox=gates.inbox(shown.inbox),
        asked=[*map(gates.entry, shown.asked)],
        memories=gates.memories(shown.memories),
        context=gates.files(shown.context),
        tell=tell,
    )
    return passed, {**told, "verdicts": gates.verdicts}


def _as_answered(task: Task | None, passed: Task | None) -> Task | None:
    """Return what a turn is for, its answers as gates let them pass, but for what holds something."""
    if task is None or passed is None:
        return None
    pairs = zip(task.asked, passed.asked, strict=True)
    return task._replace(asked=[was if was.asked.held else now for was, now in pairs])
