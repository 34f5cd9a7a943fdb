"""One small call to a model: does it answer, with the contract, in what form, for how much, in what time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lemming.capabilities.hosted.refusals import INSTEAD
from lemming.capabilities.money.prices import price_of
from lemming.kernel.agents import Agent
from lemming.kernel.base.clock import Clock
from lemming.kernel.base.contract import parse_reply
from lemming.kernel.base.errors import ContractError, Problem, UsageError
from lemming.kernel.base.kinds import MessageKind
from lemming.kernel.llm.credits import usage_of
from lemming.kernel.org.config import Org
from lemming.kernel.org.models import ANSWERS_KNOWN, ModelEntry
from lemming.kernel.providers import Message, Reply, Request, is_channel, is_person, require_reply
from lemming.kernel.tick.backends import Backends
from lemming.kernel.turn.opening import calls_natively
from lemming.kernel.turn.prompt import full_opening
from lemming.kernel.turn.reply_schemas import reply_schema

EMBEDDED = "local"
"""The provider whose models run inside the engine, and cost nothing unless their line says so."""
TESTER = Agent(name="tester", title="Tester", instructions="You try out whether a model is of use here.")
KINDS: tuple[MessageKind, ...] = ("message",)
PING = {
    "name": "ping",
    "description": "Says that you are there.",
    "parameters": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
}
ASK_TO_CALL = "First call the tool ping with the text: ready. Then: "
QUESTION = 'Write one entry of kind "message" whose text is: ready'


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What came of it. `problem`: why the answer is not the contract; `left_out`: what its server refused.

    `calls_tools`: whether it called the tool that its backend told it of; None where it was told of none.
    """

    provider: str
    model: str
    text: str
    problem: str
    takes_schema: bool
    calls_tools: bool | None
    left_out: list[str] = field(default_factory=list)
    input_tokens: int = 0
    output_tokens: int = 0
    credits: float = 0.0
    cost_usd: float | None = None
    price: str = ""
    duration_s: float = 0.0

    @property
    def is_of_use(self) -> bool:
        """Whether the model answered as an agent has to."""
        return not self.problem

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {**asdict(self), "is_of_use": self.is_of_use}

    def lines(self, key: str) -> Iterator[tuple[str, str]]:
        """Yield what a person is shown: a label, and what is said of it."""
        yield "model", f'"{key}" is {self.provider} {self.model}'.strip()
        if not self.calls_tools:
            yield "contract", f"no: {self.problem}" if self.problem else "yes, at the first answer"
        if self.calls_tools is not None:
            yield "tools", "called by its backend" if self.calls_tools else "told of one, it called none"
        yield "schema", "held to one by the backend" if self.takes_schema else "in the prompt only"
        for part in self.left_out:
            yield "without", f"{part}: the server {INSTEAD[part]}"
        cost = "unknown" if self.cost_usd is None else f"${self.cost_usd:.6f}" if self.cost_usd else "$0"
        price = f"; {self.price}" if self.price else ""
        yield "cost", f"{self.input_tokens} tokens in, {self.output_tokens} out: {cost}{price}"
        yield "time", f"{self.duration_s:.1f} s"
        yield "answer", self.text


def try_out(base: Path, entry: ModelEntry, settings: Org, clock: Clock, stop: threading.Event) -> Trial:
    """Ask a model once, whatever its circuit breaker says.

    Raises the call's `ProviderError`, and `UsageError` for an entry that no model answers for.
    """
    plugins = settings.plugins
    if (
        entry.provider in ANSWERS_KNOWN
        or is_person(entry.provider, plugins)
        or is_channel(entry.provider, plugins)
    ):
        raise UsageError(f"{entry.provider} is no model: nobody is called", hint="lemming models list")
    refused: list[Problem] = []
    backends = Backends(base, clock, stop, refused.append, settings)
    provider = backends.bare(entry)
    natively = calls_natively(entry, provider)
    began = time.perf_counter()
    request = _request(entry, takes_schema=provider.takes_schema, natively=natively)
    server = backends.server(entry)
    # It may take by now what it refused before.
    server.forget(entry.model)
    reply = backends.ask_once(entry, request)
    usage = usage_of(entry, request.messages, reply)
    left_out = sorted(server.left_out(entry.model))
    return Trial(
        provider=entry.provider,
        model=reply.model or entry.model,
        text=reply.text,
        problem="" if reply.calls else _problem(entry, reply),
        takes_schema=provider.takes_schema and "json_schema" not in left_out,
        calls_tools=bool(reply.calls) if natively else None,
        left_out=left_out,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        credits=usage.credits,
        cost_usd=0.0 if usage.cost_usd is None and entry.provider == EMBEDDED else usage.cost_usd,
        price=str(price_of(entry) or ""),
        duration_s=time.perf_counter() - began,
    )


def _request(entry: ModelEntry, *, takes_schema: bool, natively: bool) -> Request:
    question: Message = {"role": "user", "content": f"{ASK_TO_CALL if natively else ''}{QUESTION}"}
    messages = [*full_opening(TESTER, None if natively else ()), question]
    if natively:
        messages[0]["tools"] = [PING]
    return Request(
        model_name=entry.model,
        messages=messages,
        temperature=entry.temperature,
        schema=_SCHEMA if takes_schema and not natively else None,
        max_output_tokens=entry.max_output_tokens,
        deadline_s=entry.deadline_s,
        agent=TESTER.name,
    )


def _problem(entry: ModelEntry, reply: Reply) -> str:
    try:
        require_reply(reply.finish, reply.text)
        parse_reply(reply.text, kinds=KINDS, max_entries=1)
    except ContractError as error:
        return error.message
    return ""


_SCHEMA = reply_schema(kinds=KINDS, tools={}, max_entries=1)
