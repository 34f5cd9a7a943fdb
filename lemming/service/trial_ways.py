"""The ways in which a model is asked in a trial, and what came of each: it works, it did not, it never can.

A way never can where the server refuses a part that it needs, or where the line's own `extra` sends a schema
beside the tools: then no reply could hold a call. Where the server takes everything and the model answers
otherwise, it did not, and a larger model may.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from lemming.kernel.base.errors import ContractError, ProviderError, RequestRejected
from lemming.kernel.base.jsontext import compact
from lemming.kernel.org.models import ModelEntry
from lemming.kernel.providers import LLMProvider, Reply, Request
from lemming.kernel.turn.forms.choosing import Abilities
from lemming.service.trial_questions import QUESTIONS, TESTER, SentQuestion, ask_question

Verdict = Literal["yes", "other", "no", "never", "-"]
"""`other`: a valid reply that does something else than the question is for. `-`: not asked, as the way never
can."""

TOLD: Mapping[Verdict, str] = {"yes": "yes", "other": "did not", "no": "invalid", "never": "never", "-": "-"}
_SCHEMA_FIELDS = ("response_format", "text", "output_config", "format", "grammar", "json_schema",
                  "guided_json", "structured_outputs")  # fmt: skip
"""Fields of requests by which servers hold a whole reply to a schema."""


class Way(NamedTuple):
    """A way to ask for actions. `needs`: the part of a request that it cannot do without."""

    name: str
    takes_schema: bool
    calls_tools: bool
    needs: str = ""


ACTIONS = Way("actions under a schema", True, False, "json_schema")
NATIVE = Way("native tools, no schema", True, True, "tools")
PLAIN = Way("neither of the two", False, False)
WAYS = (ACTIONS, NATIVE, PLAIN)


@dataclass(frozen=True)
class WayResult:
    """What came of one way: a verdict for each question, and in words why one is not "yes"."""

    way: str
    verdicts: dict[str, Verdict]
    remarks: dict[str, str] = field(default_factory=dict)
    line: dict[str, Any] = field(default_factory=dict)

    @property
    def works(self) -> bool:
        """Whether every reply was valid; a native call that nobody saw is none."""
        return all(
            it == "yes" or (it == "other" and self.way != NATIVE.name) for it in self.verdicts.values()
        )

    @property
    def does_all(self) -> bool:
        """Whether every reply did what its question is for."""
        return all(it == "yes" for it in self.verdicts.values())


@dataclass
class WayTrial:
    """Tries ways with the model of a line. The same question is asked once, whatever ways have it.

    `make` returns the provider of a line, `ask` asks it, and `left_out` says what its server is known to
    refuse. `prompt`: as in a line. `has_json`: the provider has the option `json`.
    """

    entry: ModelEntry
    prompt: str
    has_json: bool
    make: Callable[[ModelEntry], LLMProvider]
    ask: Callable[[ModelEntry, Request], Reply]
    left_out: Callable[[], Collection[str]]
    replies: dict[bytes, tuple[Request, Reply]] = field(default_factory=dict)

    def try_ways(self) -> list[WayResult]:
        """Return what comes of each way; raise the error of a server that cannot be asked at all."""
        return [self._try(way) for way in WAYS]

    def _try(self, way: Way) -> WayResult:
        line = self._line_of(way)
        entry = replace(self.entry, **line)
        provider = self.make(entry)
        if why := self._find_obstacle(way, entry, provider):
            return _never(way, why, line)
        verdicts: dict[str, Verdict] = {}
        remarks: dict[str, str] = {}
        for question in QUESTIONS:
            can = Abilities(way.takes_schema and provider.takes_schema, way.calls_tools, self.prompt)
            asked = ask_question(question, can, entry.max_output_tokens)
            try:
                reply = self._reply(entry, asked)
            except RequestRejected as error:
                if question is QUESTIONS[0]:  # which is asked for a text alone
                    raise
                return _never(way, f"the server refuses it: {error.message}", line, verdicts)
            if why := self._find_refusal(way, reply):
                return _never(way, why, line, verdicts)
            verdicts[question.kind], remark = _judge(question.does, asked, reply, natively=way.calls_tools)
            if remark:
                remarks[question.kind] = remark
        return WayResult(way.name, verdicts, remarks, line)

    def _line_of(self, way: Way) -> dict[str, Any]:
        """Return the keys of a line that have the engine ask in a way, where they are other than now."""
        line: dict[str, Any] = {"tools": "native" if way.calls_tools else "contract"}
        options = {key: value for key, value in self.entry.options.items() if key != "json"}
        if not self.has_json or way.calls_tools:
            return line
        if not way.takes_schema:
            options["json"] = "text"
        elif not self.make(replace(self.entry, options=options)).takes_schema:
            options["json"] = "schema"
        return line if options == self.entry.options else {**line, "options": options}

    def _find_obstacle(self, way: Way, entry: ModelEntry, provider: LLMProvider) -> str:
        """Return why a way cannot be asked for by this line; empty where it can."""
        if way.calls_tools and not provider.takes_tools:
            return f"{entry.provider} takes no tools"
        if way is ACTIONS and not provider.takes_schema:
            return f"{entry.provider} takes no schema"
        is_left_out = "json_schema" in self.left_out()
        if not way.takes_schema and provider.takes_schema and not self.has_json and not is_left_out:
            return f"no option of {entry.provider} leaves the schema out"
        extra = entry.options.get("extra") or {}
        if way.calls_tools and (sent := [name for name in _SCHEMA_FIELDS if extra.get(name) is not None]):
            return (
                f"options.extra sends {sent[0]} beside the tools, and under a schema no call can be written"
            )
        return ""

    def _find_refusal(self, way: Way, reply: Reply) -> str:
        """Return with what words the server refused what a way needs; empty where it took it."""
        words = {it.refused: it.message for it in reply.earlier if isinstance(it, RequestRejected)}
        if way.needs and (way.needs in words or way.needs in self.left_out()):
            part = "tools" if way is NATIVE else "schema"
            return f"the server takes no {part}: {words.get(way.needs, 'it has refused it before')}"
        return ""

    def _reply(self, entry: ModelEntry, asked: SentQuestion) -> Reply:
        key = compact([asked.messages, asked.choice.schema])
        if key not in self.replies:
            request = Request(
                model_name=entry.model,
                messages=asked.messages,
                temperature=entry.temperature,
                schema=asked.choice.schema,
                max_output_tokens=entry.max_output_tokens,
                deadline_s=entry.deadline_s,
                agent=TESTER,
            )
            self.replies[key] = request, self.ask(entry, request)
        return self.replies[key][1]


def _judge(
    does: Callable[[Any], bool], asked: SentQuestion, reply: Reply, *, natively: bool
) -> tuple[Verdict, str]:
    """Return the verdict on a reply, and in words what it is where it is not what was wanted."""
    shown = " ".join(reply.text.split())[:160]
    try:
        read = asked.read(reply)
    except (ContractError, ProviderError) as error:
        return "no", f"{error.message}: {shown}"
    if not does(read):
        return (
            "other",
            f"valid, and does something else: {shown}" if shown else "valid, and does something else",
        )
    if natively and asked.choice.form.style == "native" and not reply.calls:
        return "other", f"the call is written as text: {shown}"
    return "yes", ""


def _never(way: Way, why: str, line: dict[str, Any], verdicts: dict[str, Verdict] | None = None) -> WayResult:
    """Return the result of a way that never can; what was asked before that was known is left as it is."""
    known = verdicts or {}
    open_ = [question.kind for question in QUESTIONS if question.kind not in known]
    told: dict[str, Verdict] = {**known, **dict.fromkeys(open_, "-"), open_[0]: "never"}
    return WayResult(way.name, told, {open_[0]: why}, line)


def choose_way(results: list[WayResult], own: str) -> WayResult | None:
    """Return the way that a line should have: one that does all, then one that is valid, else none.

    Of two that are as good the line's own stays, then the first in order.
    """
    working = [it for it in results if it.works]
    return min(working, key=lambda it: (not it.does_all, it.way != own), default=None)
