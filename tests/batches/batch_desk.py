"""The batches of a tick in tests: a server, a clock, a journal, and turns on threads of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from batch_server import BatchServer
from patience import PATIENCE_S

from lemming.capabilities.batches.batch_queue import BatchQueue
from lemming.kernel.journal.engine_events import Event
from lemming.kernel.journal.journal_records import Record
from lemming.kernel.llm.call_batching import BatchContext
from lemming.kernel.llm.retrying_provider import RetryingLLMProvider
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.providers import LLMProvider, Reply, Request, make_provider
from lemming.testing import FrozenClock

APIS: dict[str, Callable[[str], dict[str, Any]]] = {
    "chat": lambda url: {"provider": "openai", "options": {"base_url": f"{url}/v1"}},
    "responses": lambda url: {"provider": "openai", "options": {"base_url": f"{url}/v1", "api": "responses"}},
    "anthropic": lambda url: {"provider": "anthropic", "options": {"base_url": url}},
}
AGENTS = ("ada", "bob", "cyd")


@dataclass
class Desk:
    """What the batches of a tick are given, and what they did with it."""

    server: BatchServer
    entry: ModelEntry
    clock: FrozenClock
    stop: threading.Event = field(default_factory=threading.Event)
    records: list[Record] = field(default_factory=list)
    synced: list[str] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)
    providers: dict[str, LLMProvider] = field(default_factory=dict)
    on_pause: Callable[[], object] = bool
    on_record: Callable[[str], object] = bool

    def batches(self, *, sends: bool = True) -> BatchQueue:
        """Return the batches of an attempt at the tick, which has the records of the earlier ones."""
        journal: Any = SimpleNamespace(records=list(self.records), append=self.record)
        return BatchQueue(
            BatchContext(
                make=self.provider,
                live=lambda entry, request: RetryingLLMProvider(self.provider(entry)).complete(request),
                record_batched=lambda agent: None,
                journal=journal,
                clock=self.clock.now,
                notify=self.events.append,
                stop=self.stop,
                sends=sends,
                sleep=self.sleep,
            )
        )

    def provider(self, entry: ModelEntry) -> LLMProvider:
        key = f"{entry.provider} {entry.options}"
        if key not in self.providers:
            self.providers[key] = make_provider(entry.provider, entry.options)
        return self.providers[key]

    def record(self, record: Record, *, sync: bool = False) -> None:
        self.records.append(record)
        self.synced += [record.kind] if sync else []
        self.on_record(record.kind)

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.on_pause()

    def ask(self, *agents: str, batches: BatchQueue | None = None, step: int = 0) -> dict[str, Reply]:
        """Let agents ask at once, each on a thread of its own; raise what one of them met."""
        batches = batches or self.batches()
        batches.add_turns(len(agents))

        def turn(agent: str) -> Reply:
            try:
                return batches.complete(self.entry, question(agent, step))
            finally:
                batches.remove_turn()

        with ThreadPoolExecutor(len(agents)) as pool:
            asked = {agent: pool.submit(turn, agent) for agent in agents}
            return {agent: future.result(PATIENCE_S) for agent, future in asked.items()}

    def kinds(self) -> list[str]:
        return [record.kind for record in self.records]

    def path(self) -> str:
        return "/v1/messages/batches" if self.entry.provider == "anthropic" else "/v1/batches"


def question(agent: str, step: int = 0) -> Request:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": f"Hello, {agent}."}]
    schema = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    return Request(model_name="m", messages=messages, schema=schema, temperature=0.5, agent=agent, tick=7, step=step)


def make_desk(api: str, server: BatchServer) -> Desk:
    plain = APIS[api](server.url)
    options = {**plain["options"], "batches": True, "extra": {"top_p": 0.5}}
    entry = ModelEntry(provider=plain["provider"], model="m", options=options, attempts=3)
    return Desk(server, entry, FrozenClock(datetime.now(UTC)))
