"""One small call to a model: does it answer, with the contract, in what form, for how much, in what time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lemming.agents import Agent
from lemming.clock import Clock
from lemming.config import Org
from lemming.contract import brief_schema, parse_reply, reply_schema
from lemming.errors import ContractError, Problem, UsageError
from lemming.llm.prices import price_of
from lemming.llm.pricing import usage_of
from lemming.llm.servers import INSTEAD
from lemming.models import ModelEntry
from lemming.providers import Message, Request, is_channel, is_person, require_reply
from lemming.tick.backends import Backends
from lemming.turn.prompt import OPENINGS

NO_MODELS = ("plan", "clock", "replay")
TESTER = Agent(name="tester", title="Tester", instructions="You try out whether a model is of use here.")
QUESTION = 'Write one entry of kind "message" whose text is: ready'


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What came of it. `problem`: why the answer is not the contract; `left_out`: what its server refused."""

    provider: str
    model: str
    text: str
    problem: str
    takes_schema: bool
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
        yield "contract", f"no: {self.problem}" if self.problem else "yes, at the first answer"
        yield "schema", "held to one by the backend" if self.takes_schema else "in the prompt only"
        for part in self.left_out:
            yield "without", f"{part}: the server {INSTEAD[part]}"
        cost = "unknown" if self.cost_usd is None else f"${self.cost_usd:.6f}"
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
        entry.provider in NO_MODELS
        or is_person(entry.provider, plugins)
        or is_channel(entry.provider, plugins)
    ):
        raise UsageError(f"{entry.provider} is no model: nobody is called", hint="lemming models list")
    refused: list[Problem] = []
    backends = Backends(base, clock, stop, refused.append, settings)
    provider = backends.bare(entry)
    began = time.perf_counter()
    request = _request(entry, takes_schema=provider.takes_schema)
    server = backends.server(entry)
    server.forget(entry.model)
    reply = backends.ask_once(entry, request)
    usage = usage_of(entry, request.messages, reply)
    left_out = sorted(server.left_out(entry.model))
    return Trial(
        provider=entry.provider,
        model=reply.model or entry.model,
        text=reply.text,
        problem=_problem(reply.text, reply.finish),
        takes_schema=provider.takes_schema and "json_schema" not in left_out,
        left_out=left_out,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        credits=usage.credits,
        cost_usd=usage.cost_usd,
        price=str(price_of(entry) or ""),
        duration_s=time.perf_counter() - began,
    )


def _request(entry: ModelEntry, *, takes_schema: bool) -> Request:
    schema = brief_schema(kinds=("message",)) if entry.prompt == "brief" else _SCHEMA
    question: Message = {"role": "user", "content": QUESTION}
    return Request(
        model_name=entry.model,
        messages=[*OPENINGS[entry.prompt](TESTER, ()), question],
        temperature=entry.temperature,
        schema=schema if takes_schema else None,
        max_output_tokens=entry.max_output_tokens,
        deadline_s=entry.deadline_s,
        agent=TESTER.name,
    )


def _problem(text: str, finish: str) -> str:
    try:
        require_reply(finish)
        parse_reply(text, kinds=("message",), max_entries=1)
    except ContractError as error:
        return error.message
    return ""


_SCHEMA = reply_schema(kinds=("message",), tools={}, max_entries=1)
