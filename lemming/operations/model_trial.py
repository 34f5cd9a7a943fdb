"""Trial of a model with four small first turns: verdicts, cost and time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from lemming.kernel.agents import Agent
from lemming.kernel.base.clock import Clock
from lemming.kernel.base.contract import parse_reply
from lemming.kernel.base.entry_kinds import MessageKind
from lemming.kernel.base.errors import ContractError, Problem, ProviderError, RequestRejected, UsageError
from lemming.kernel.llm.call_cost import Usage, compute_usage
from lemming.kernel.org.config import OrgSettings
from lemming.kernel.org.model_entries import PROVIDERS_WITHOUT_MODEL, ModelEntry
from lemming.kernel.providers import LLMProvider, Message, Reply, Request, is_channel, is_person, require_usable_finish
from lemming.kernel.tick.model_backends import Backends
from lemming.kernel.turn.forms.form_choice import FORM_PROMPTS, ModelFeatures
from lemming.kernel.turn.prompt_prefix import has_native_tools
from lemming.kernel.turn.reply_schemas import reply_schema
from lemming.kernel.turn.turn_prompt import full_prefix
from lemming.libraries.compatible_servers import FALLBACKS
from lemming.operations.model_prices import find_price
from lemming.operations.trial_forms import TRIAL_PROMPTS, VERDICT_LABELS, Verdict, build_prompt, rate_reply

EMBEDDED = "local"
"""The provider of models inside the engine, free unless the entry has a price."""
TEST_AGENT = Agent(name="tester", title="Tester", instructions="You try out whether a model is of use here.")
KINDS: tuple[MessageKind, ...] = ("message",)
QUESTION = 'Write one entry of kind "message" whose text is: ready'


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Result of a trial.

    `problem`: the reason against the entry. `left_out`: request parts refused by the server. `verdicts`: a
    verdict for each kind of turn, with a remark for each verdict other than "yes". Without verdicts the entry
    was asked a single question by the whole contract.
    """

    provider: str
    model: str
    text: str
    problem: str
    takes_schema: bool
    calls_tools: bool
    left_out: list[str] = field(default_factory=list)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    remarks: dict[str, str] = field(default_factory=dict)
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

    def format_lines(self, key: str) -> Iterator[tuple[str, str]]:
        """Yield pairs of a label and a text for the screen."""
        yield "model", f'"{key}" is {self.provider} {self.model}'.strip()
        for kind, verdict in self.verdicts.items():
            remark = self.remarks.get(kind, "")
            yield kind, f"{VERDICT_LABELS[verdict]}{f': {remark}' if remark else ''}"
        if not self.verdicts:
            yield "contract", f"no: {self.problem}" if self.problem else "yes, at the first answer"
            yield "answer", self.text
        yield "tools", "called natively" if self.calls_tools else "called in the text of the reply"
        yield "schema", "held to one by the backend" if self.takes_schema else "in the prompt only"
        for part in self.left_out:
            yield "without", f"{part}: the server {FALLBACKS[part]}"
        if self.verdicts and self.problem:
            other = "contract" if self.calls_tools else "native"
            yield "try", f'"tools": "{other}" in its line of config/models.json'
        cost = "unknown" if self.cost_usd is None else f"${self.cost_usd:.6f}" if self.cost_usd else "$0"
        price = f"; {self.price}" if self.price else ""
        yield "cost", f"{self.input_tokens} tokens in, {self.output_tokens} out: {cost}{price}"
        yield "time", f"{self.duration_s:.1f} s"


def try_model(base: Path, entry: ModelEntry, settings: OrgSettings, clock: Clock, stop: threading.Event) -> Trial:
    """Call a model with small prompts, without circuit breaker. Raises: ProviderError, UsageError."""
    plugins = settings.plugins
    if (
        entry.provider in PROVIDERS_WITHOUT_MODEL
        or is_person(entry.provider, plugins)
        or is_channel(entry.provider, plugins)
    ):
        raise UsageError(f"{entry.provider} cannot be tested: it is not a model", hint="lemming models list")
    problems: list[Problem] = []
    backends = Backends(base, clock, stop, problems.append, settings)
    provider = backends.make_provider(entry)
    prompt = entry.prompt or ("full" if provider.writes_contract else "fit")
    start_time = time.perf_counter()
    server = backends.server_profile(entry)
    # The server may have been updated since the last refusal.
    server.forget(entry.model)
    trial = (
        _try_turns(backends, entry, provider, prompt)
        if prompt in FORM_PROMPTS
        else _try_contract(backends, entry, provider)
    )
    refused_parts = sorted(server.rejected_parts(entry.model))
    return replace(
        trial,
        takes_schema=provider.takes_schema and "json_schema" not in refused_parts,
        calls_tools=trial.calls_tools and "tools" not in refused_parts,
        left_out=refused_parts,
        cost_usd=0.0 if trial.cost_usd is None and entry.provider == EMBEDDED else trial.cost_usd,
        price=str(find_price(entry) or ""),
        duration_s=time.perf_counter() - start_time,
    )


def _try_turns(backends: Backends, entry: ModelEntry, provider: LLMProvider, prompt: str) -> Trial:
    """Ask for four first turns in the way of the entry. Raises: the error of the first, which needs only a text."""
    is_native = has_native_tools(entry, provider)
    features = ModelFeatures(provider.takes_schema, is_native, prompt)
    replies, usages = list[Reply](), list[Usage]()
    verdicts, remarks = dict[str, Verdict](), dict[str, str]()
    for turn in TRIAL_PROMPTS:
        trial_request = build_prompt(turn, features, entry.max_output_tokens)
        request = _build_request(entry, trial_request.messages, trial_request.choice.schema)
        try:
            reply = backends.complete_once(entry, request)
        except RequestRejected as error:
            if not replies:
                raise
            verdicts[turn.kind], remark = "no", f"the server refuses it: {error.message}"
        else:
            replies.append(reply)
            usages.append(compute_usage(entry, request.messages, reply))
            verdicts[turn.kind], remark = rate_reply(turn, trial_request, reply)
        if remark:
            remarks[turn.kind] = remark
    # A native call that is lost in the text is of no use.
    failed_kinds = [kind for kind, verdict in verdicts.items() if verdict == "no" or (is_native and verdict == "other")]
    return Trial(
        provider=entry.provider,
        model=next((reply.model for reply in replies if reply.model), entry.model),
        text=replies[0].text,
        problem=remarks[failed_kinds[0]] if failed_kinds else "",
        takes_schema=provider.takes_schema,
        calls_tools=is_native,
        verdicts=verdicts,
        remarks=remarks,
        **_sum_usage(usages),
    )


def _sum_usage(usages: Sequence[Usage]) -> dict[str, Any]:
    """Sum the usage of several calls. The total cost is unknown if the cost of any call is unknown."""
    costs = [usage.cost_usd for usage in usages]
    return {
        "input_tokens": sum(usage.input_tokens for usage in usages),
        "output_tokens": sum(usage.output_tokens for usage in usages),
        "credits": sum(usage.credits for usage in usages),
        "cost_usd": None if None in costs else sum(cost for cost in costs if cost is not None),
    }


def _try_contract(backends: Backends, entry: ModelEntry, provider: LLMProvider) -> Trial:
    """Try a prompt with the full contract, for an entry with such a setting."""
    messages: list[Message] = [*full_prefix(TEST_AGENT, ()), {"role": "user", "content": QUESTION}]
    request = _build_request(entry, messages, _SCHEMA if provider.takes_schema else None)
    reply = backends.complete_once(entry, request)
    return Trial(
        provider=entry.provider,
        model=reply.model or entry.model,
        text=reply.text,
        problem=_describe_problem(reply),
        takes_schema=provider.takes_schema,
        calls_tools=False,
        **_sum_usage([compute_usage(entry, request.messages, reply)]),
    )


def _build_request(entry: ModelEntry, messages: list[Message], schema: dict[str, Any] | None) -> Request:
    return Request(
        model_name=entry.model,
        messages=messages,
        temperature=entry.temperature,
        schema=schema,
        max_output_tokens=entry.max_output_tokens,
        deadline_s=entry.deadline_s,
        agent=TEST_AGENT.name,
    )


def _describe_problem(reply: Reply) -> str:
    try:
        require_usable_finish(reply.finish, reply.text)
        parse_reply(reply.text, kinds=KINDS, max_entries=1)
    except (ContractError, ProviderError) as error:
        return error.message
    return ""


_SCHEMA = reply_schema(kinds=KINDS, tools={}, max_entries=1)
