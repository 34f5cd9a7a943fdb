"""Trial of a model with a few small calls: tool calls, forms, cost and time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from lemming.kernel.agents import Agent
from lemming.kernel.base import paths
from lemming.kernel.base.clock import Clock
from lemming.kernel.base.contract import parse_reply
from lemming.kernel.base.entry_kinds import MessageKind
from lemming.kernel.base.errors import ContractError, Problem, ProviderError, UsageError
from lemming.kernel.base.jsontext import parse, to_line
from lemming.kernel.llm.call_cost import compute_usage
from lemming.kernel.org.config import OrgSettings
from lemming.kernel.org.model_entries import PROVIDERS_WITHOUT_MODEL, ModelEntry
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.providers import LLMProvider, Reply, Request, is_channel, is_person, require_usable_finish
from lemming.kernel.tick.model_backends import Backends
from lemming.kernel.turn.forms.form_choice import FORM_PROMPTS
from lemming.kernel.turn.prompt_prefix import has_native_tools
from lemming.kernel.turn.reply_schemas import reply_schema
from lemming.kernel.turn.turn_prompt import full_prefix
from lemming.libraries.compatible_servers import FALLBACKS
from lemming.libraries.settings_edits import edit_file, set_json_value
from lemming.operations.choose_model import get_builtin_entry
from lemming.operations.model_prices import find_price
from lemming.operations.trial_forms import ACTIONS, NATIVE, PLAIN, VERDICT_LABELS, WayResult, WayTrial, choose_way

EMBEDDED = "local"
"""The provider of models inside the engine, free unless the entry has a price."""
TEST_AGENT = Agent(name="tester", title="Tester", instructions="You try out whether a model is of use here.")
KINDS: tuple[MessageKind, ...] = ("message",)
QUESTION = 'Write one entry of kind "message" whose text is: ready'


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Result of a trial.

    `problem`: the reason against the current entry. `left_out`: request parts refused by the server.

    `calls_tools` is True if the model called the declared tool, and None without a declared tool. `ways`
    holds the result of each way to request actions, `own` the way of the current entry, and `line` the
    recommended keys for the entry (empty: no change).
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
    def is_usable(self) -> bool:
        """True if the model gave the replies an agent needs."""
        return not self.problem

    def as_json(self) -> dict[str, Any]:
        """Return the trial as JSON values."""
        return {**asdict(self), "is_of_use": self.is_usable}

    def format_table(self) -> Iterator[str]:
        """Yield the lines of a table with the verdict for each way and prompt. One prompt alone has no table."""
        if not self.ways:
            return
        kinds = [*self.ways[0].verdicts]
        width = max(len(way.way) for way in self.ways)
        yield " ".join(["asked for".ljust(width), *(kind.ljust(8) for kind in kinds)]).rstrip()
        for way in self.ways:
            verdicts = [VERDICT_LABELS[way.verdicts[kind]].ljust(8) for kind in kinds]
            mark = " <- this line" if way.way == self.own else ""
            yield f"{' '.join([way.way.ljust(width), *verdicts]).rstrip()}{mark}"
        for way in self.ways:
            yield from (f"  {way.way}, {kind}: {remark}" for kind, remark in way.remarks.items())

    def format_lines(self, key: str) -> Iterator[tuple[str, str]]:
        """Yield pairs of a label and a text for the screen."""
        yield "model", f'"{key}" is {self.provider} {self.model}'.strip()
        if self.ways:
            yield "line", self._format_advice(key)
        else:
            yield "contract", f"no: {self.problem}" if self.problem else "yes, at the first answer"
            yield "answer", self.text
        yield "schema", "held to one by the backend" if self.takes_schema else "in the prompt only"
        for part in self.left_out:
            yield "without", f"{part}: the server {FALLBACKS[part]}"
        cost = "no price" if self.cost_usd is None else f"${self.cost_usd:.6f}" if self.cost_usd else "$0"
        price = f"; {self.price}" if self.price else ""
        yield "cost", f"{self.input_tokens} tokens in, {self.output_tokens} out: {cost}{price}"
        yield "time", f"{self.duration_s:.1f} s"

    def _format_advice(self, key: str) -> str:
        if self.line:
            return f"{to_line(self.line)} works better: `lemming models test {key} --write` writes it"
        if not self.is_usable:
            return f"none of these ways works: {self.problem}"
        (current,) = [way for way in self.ways if way.way == self.own]
        return "works as it is" if current.is_complete else "its replies are valid, and none of these ways does all"


def try_model(base: Path, entry: ModelEntry, settings: OrgSettings, clock: Clock, stop: threading.Event) -> Trial:
    """Call a model with small prompts in each way, without circuit breaker. Raises: ProviderError, UsageError."""
    name, plugins = entry.provider, settings.plugins
    if name in PROVIDERS_WITHOUT_MODEL or is_person(name, plugins) or is_channel(name, plugins):
        raise UsageError(f"{name} cannot be tested: it is not a model", hint="lemming models list")
    problems: list[Problem] = []
    backends = Backends(base, clock, stop, problems.append, settings)
    provider = backends.make_provider(entry)
    prompt = entry.prompt or ("full" if provider.writes_contract else "fit")
    start_time = time.perf_counter()
    server = backends.server_profile(entry)
    # The server may have been updated since the last refusal.
    server.forget(entry.model)
    if prompt in FORM_PROMPTS:
        trial = _try_ways(WayTrial(backends, entry, prompt), provider)
    else:
        trial = _try_contract(backends, entry, provider)
    refused_parts = sorted(server.rejected_parts(entry.model))
    return replace(
        trial,
        takes_schema=provider.takes_schema and "json_schema" not in refused_parts,
        left_out=refused_parts,
        cost_usd=0.0 if trial.cost_usd is None and entry.provider == EMBEDDED else trial.cost_usd,
        price=str(find_price(entry) or ""),
        duration_s=time.perf_counter() - start_time,
    )


def _try_ways(trial: WayTrial, provider: LLMProvider) -> Trial:
    results = {way: trial.try_way(way) for way in (ACTIONS, NATIVE, PLAIN)}
    own = NATIVE if has_native_tools(trial.entry, provider) else ACTIONS if provider.takes_schema else PLAIN
    current, best = results[own], choose_way([*results.values()], own.name)
    calls = results[NATIVE].verdicts.get("tool")
    return Trial(
        **_describe_replies(trial.entry, [*trial.replies.values()]),
        problem="" if current.is_valid else next(iter(current.remarks.values()), ""),
        takes_schema=provider.takes_schema,
        calls_tools=None if calls in ("never", "-", None) else calls == "yes",
        ways=[*results.values()],
        own=own.name,
        line={} if best is None or best is current else best.line,
    )


def _describe_replies(entry: ModelEntry, replies: Sequence[tuple[Request, Reply]]) -> dict[str, Any]:
    """Return model, text and usage of several calls. The total cost is unknown if the cost of any call is unknown."""
    usages = [compute_usage(entry, request.messages, reply) for request, reply in replies]
    costs = [usage.cost_usd for usage in usages]
    return {
        "provider": entry.provider,
        "model": next((reply.model for _, reply in replies if reply.model), entry.model),
        "text": next((reply.text for _, reply in replies), ""),
        "input_tokens": sum(usage.input_tokens for usage in usages),
        "output_tokens": sum(usage.output_tokens for usage in usages),
        "credits": sum(usage.credits for usage in usages),
        "cost_usd": None if None in costs else sum(cost for cost in costs if cost is not None),
    }


def _try_contract(backends: Backends, entry: ModelEntry, provider: LLMProvider) -> Trial:
    request = Request(
        model_name=entry.model,
        messages=[*full_prefix(TEST_AGENT, ()), {"role": "user", "content": QUESTION}],
        temperature=entry.temperature,
        schema=reply_schema(kinds=KINDS, tools={}, max_entries=1) if provider.takes_schema else None,
        max_output_tokens=entry.max_output_tokens,
        deadline_s=entry.deadline_s,
        agent=TEST_AGENT.name,
    )
    reply, problem = backends.complete_once(entry, request), ""
    try:
        require_usable_finish(reply.finish, reply.text)
        parse_reply(reply.text, kinds=KINDS, max_entries=1)
    except (ContractError, ProviderError) as error:
        problem = error.message
    replies = _describe_replies(entry, [(request, reply)])
    return Trial(**replies, problem=problem, takes_schema=provider.takes_schema, calls_tools=None)


def write_model_entry(base: OrgPath, key: str, keys: dict[str, Any]) -> None:
    """Set keys of an entry in `config/models.json`; all other text stays unchanged."""
    with edit_file(base, paths.MODELS_FILE) as models_file:
        raw = models_file.raw
        if key not in parse(raw, allow_bom=True):  # a built-in key without an entry
            raw = set_json_value(raw, [key], get_builtin_entry(base, key))
        for name, value in keys.items():
            raw = set_json_value(raw, [key, name], value)
        models_file.publish(raw)
