"""A few small calls to a model: in which way it calls tools and fills forms, for how much, in what time."""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from lemming.capabilities.hosted.refusals import INSTEAD
from lemming.capabilities.money.prices import price_of
from lemming.kernel.agents import Agent
from lemming.kernel.base.clock import Clock
from lemming.kernel.base.contract import parse_reply
from lemming.kernel.base.errors import ContractError, Problem, ProviderError, UsageError
from lemming.kernel.base.jsontext import parse, to_line
from lemming.kernel.base.kinds import MessageKind
from lemming.kernel.llm.credits import Usage, usage_of
from lemming.kernel.org.changing import changing_file
from lemming.kernel.org.config import MODELS_FILE, Org
from lemming.kernel.org.models import ANSWERS_KNOWN, ModelEntry
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.providers import (
    LLMProvider,
    Message,
    Reply,
    Request,
    is_channel,
    is_person,
    require_reply,
)
from lemming.kernel.tick.backends import Backends
from lemming.kernel.turn.forms.choosing import SMALL_FORMS
from lemming.kernel.turn.opening import calls_natively
from lemming.kernel.turn.prompt import full_opening
from lemming.kernel.turn.reply_schemas import reply_schema
from lemming.service.choose_model import built_in_line, with_value
from lemming.service.trial_ways import ACTIONS, NATIVE, PLAIN, TOLD, WayResult, WayTrial, choose_way

EMBEDDED = "local"
"""The provider whose models run inside the engine, and cost nothing unless their line says so."""
TESTER = Agent(name="tester", title="Tester", instructions="You try out whether a model is of use here.")
KINDS: tuple[MessageKind, ...] = ("message",)
QUESTION = 'Write one entry of kind "message" whose text is: ready'


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What came of it. `problem`: why the line as it is does not do; `left_out`: what its server refused.

    `calls_tools`: whether it called the tool that its backend told it of; None where it was told of none.
    `ways`: what came of each way of asking for actions, `own` the one of the line, and `line` the keys that
    it should have instead; empty where it should stay.
    """

    provider: str
    model: str
    text: str
    problem: str
    takes_schema: bool
    calls_tools: bool | None
    left_out: list[str] = field(default_factory=list)
    ways: list[WayResult] = field(default_factory=list)
    own: str = ""
    line: dict[str, Any] = field(default_factory=dict)
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

    def table(self) -> Iterator[str]:
        """Yield the lines of a table of the ways: what became of each question; nothing for one question."""
        if not self.ways:
            return
        kinds = [*self.ways[0].verdicts]
        width = max(len(way.way) for way in self.ways)
        yield " ".join(["asked for".ljust(width), *(kind.ljust(8) for kind in kinds)]).rstrip()
        for way in self.ways:
            cells = [TOLD[way.verdicts[kind]].ljust(8) for kind in kinds]
            mark = " <- this line" if way.way == self.own else ""
            yield f"{' '.join([way.way.ljust(width), *cells]).rstrip()}{mark}"
        for way in self.ways:
            yield from (f"  {way.way}, {kind}: {why}" for kind, why in way.remarks.items())

    def lines(self, key: str) -> Iterator[tuple[str, str]]:
        """Yield what a person is shown: a label, and what is said of it."""
        yield "model", f'"{key}" is {self.provider} {self.model}'.strip()
        if self.ways:
            yield "line", self._advice(key)
        else:
            yield "contract", f"no: {self.problem}" if self.problem else "yes, at the first answer"
            yield "answer", self.text
        yield "schema", "held to one by the backend" if self.takes_schema else "in the prompt only"
        for part in self.left_out:
            yield "without", f"{part}: the server {INSTEAD[part]}"
        cost = "unknown" if self.cost_usd is None else f"${self.cost_usd:.6f}" if self.cost_usd else "$0"
        price = f"; {self.price}" if self.price else ""
        yield "cost", f"{self.input_tokens} tokens in, {self.output_tokens} out: {cost}{price}"
        yield "time", f"{self.duration_s:.1f} s"

    def _advice(self, key: str) -> str:
        if self.line:
            return f"{to_line(self.line)} works better: `lemming models test {key} --write` writes it"
        if not self.is_of_use:
            return f"none of these ways works: {self.problem}"
        (own,) = [way for way in self.ways if way.way == self.own]
        return "works as it is" if own.does_all else "its replies are valid, and none of these ways does all"


def try_out(base: Path, entry: ModelEntry, settings: Org, clock: Clock, stop: threading.Event) -> Trial:
    """Ask a model a few small questions in each way there is, whatever its circuit breaker says.

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
    prompt = entry.prompt or ("full" if provider.writes_contract else "fit")
    began = time.perf_counter()
    server = backends.server(entry)
    # It may take by now what it refused before.
    server.forget(entry.model)
    if prompt in SMALL_FORMS:
        found = _try_ways(backends, entry, provider, prompt)
    else:
        found = _try_contract(backends, entry, provider)
    left_out = sorted(server.left_out(entry.model))
    return replace(
        found,
        takes_schema=provider.takes_schema and "json_schema" not in left_out,
        left_out=left_out,
        cost_usd=0.0 if found.cost_usd is None and entry.provider == EMBEDDED else found.cost_usd,
        price=str(price_of(entry) or ""),
        duration_s=time.perf_counter() - began,
    )


def _try_ways(backends: Backends, entry: ModelEntry, provider: LLMProvider, prompt: str) -> Trial:
    """Return what comes of each way of asking for actions."""
    server = backends.server(entry)
    trial = WayTrial(
        entry,
        prompt,
        has_json="json" in inspect.signature(type(provider)).parameters,
        make=backends.bare,
        ask=backends.ask_once,
        left_out=lambda: server.left_out(entry.model),
    )
    ways = trial.try_ways()
    own = NATIVE if calls_natively(entry, provider) else ACTIONS if provider.takes_schema else PLAIN
    (own_result,) = [it for it in ways if it.way == own.name]
    best = choose_way(ways, own.name)
    (native,) = [it for it in ways if it.way == NATIVE.name]
    calls = native.verdicts.get("tool")
    why = next(iter(own_result.remarks.values()), "")
    return Trial(
        provider=entry.provider,
        model=next((reply.model for _, reply in trial.replies.values() if reply.model), entry.model),
        text=next((reply.text for _, reply in trial.replies.values()), ""),
        problem="" if own_result.works else why,
        takes_schema=provider.takes_schema,
        calls_tools=None if calls in ("never", "-", None) else calls == "yes",
        ways=ways,
        own=own.name,
        line={} if best is None or best is own_result else best.line,
        **_add_up([usage_of(entry, request.messages, reply) for request, reply in trial.replies.values()]),
    )


def _add_up(usages: Sequence[Usage]) -> dict[str, Any]:
    """Return what some calls used together; their cost is unknown where that of one is."""
    costs = [usage.cost_usd for usage in usages]
    return {
        "input_tokens": sum(usage.input_tokens for usage in usages),
        "output_tokens": sum(usage.output_tokens for usage in usages),
        "credits": sum(usage.credits for usage in usages),
        "cost_usd": None if None in costs else sum(cost for cost in costs if cost is not None),
    }


def _try_contract(backends: Backends, entry: ModelEntry, provider: LLMProvider) -> Trial:
    """Return what comes of one question by the whole contract, for a line that asks for it."""
    request = _request(entry, takes_schema=provider.takes_schema)
    reply = backends.ask_once(entry, request)
    return Trial(
        provider=entry.provider,
        model=reply.model or entry.model,
        text=reply.text,
        problem=_problem(reply),
        takes_schema=provider.takes_schema,
        calls_tools=None,
        **_add_up([usage_of(entry, request.messages, reply)]),
    )


def _request(entry: ModelEntry, *, takes_schema: bool) -> Request:
    question: Message = {"role": "user", "content": QUESTION}
    return Request(
        model_name=entry.model,
        messages=[*full_opening(TESTER, ()), question],
        temperature=entry.temperature,
        schema=_SCHEMA if takes_schema else None,
        max_output_tokens=entry.max_output_tokens,
        deadline_s=entry.deadline_s,
        agent=TESTER.name,
    )


def _problem(reply: Reply) -> str:
    try:
        require_reply(reply.finish, reply.text)
        parse_reply(reply.text, kinds=KINDS, max_entries=1)
    except (ContractError, ProviderError) as error:
        return error.message
    return ""


def write_line(base: OrgPath, key: str, line: dict[str, Any]) -> None:
    """Put keys into a line of `config/models.json`; all else that is written there stays as it is."""
    with changing_file(base, MODELS_FILE) as opened:
        raw = opened.raw
        if key not in parse(raw, allow_bom=True):  # a key that stands for something without a line
            raw = with_value(raw, [key], built_in_line(base, key))
        for name, value in line.items():
            raw = with_value(raw, [key, name], value)
        opened.publish(raw)


_SCHEMA = reply_schema(kinds=KINDS, tools={}, max_entries=1)
