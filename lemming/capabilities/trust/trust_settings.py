"""The key `trust` of `config/org.json` and of resumes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from lemming.ext import describe_field
from lemming.kernel.agents import Agent
from lemming.kernel.base.jsontext import did_you_mean, escape_pointer_key
from lemming.kernel.files.fast_decoder import TypeMismatch, make_field
from lemming.kernel.org.config import OrgSettings
from lemming.libraries.conditions.predicates import iter_fields, validate_condition

TRUST = "trust"
"""The name of the capability, in records that are by capability."""
AGENT = "agent"
"""The label of agents' own texts. Only lower labels are written down."""
TAG = "trust:"
"""Prefix of the trust tag of an entry."""


class SourcedLabel(NamedTuple):
    """A trust label and the source of the label: an entry, a file or a result."""

    label: str
    source: str


@dataclass(frozen=True)
class TrustOrder:
    """The trust labels of an organisation, the least trusted first."""

    labels: Sequence[str]

    @cached_property
    def _ranks(self) -> dict[str, int]:
        return {label: rank for rank, label in enumerate(self.labels)}

    def rank(self, label: str) -> int:
        """Return the rank of a label. An unknown label has the lowest rank."""
        return self._ranks.get(label, 0)  # an unknown label is trusted least

    def normalize(self, label: str) -> str:
        """Return a label unchanged if the order contains the label, else the least trusted label."""
        # A label that the settings no longer name must not become a trusted one.
        return label if label in self._ranks else self.labels[0]

    def lowest(self, labels: Iterable[str]) -> str:
        """Return the least trusted of several labels, or the most trusted label for no labels."""
        return min(map(self.normalize, labels), key=self.rank, default=self.labels[-1])

    def is_untrusted(self, label: str) -> bool:
        """Return True if a label is below the label of agents, which requires an explicit mark."""
        return self.rank(label) < self.rank(AGENT)

    def lowest_in_tags(self, tags: Iterable[str]) -> str:
        """Return the least trusted label in the tags, or the most trusted label for no labels."""
        return self.lowest(tag.removeprefix(TAG) for tag in tags if tag.startswith(TAG))


def strip_label_tags(tags: Iterable[str]) -> list[str]:
    """Return tags without trust tags: only the engine's trust tags count."""
    return [tag for tag in tags if not tag.strip().lower().startswith(TAG)]


ORDER = ("outside", "known", "agent", "owner")
TOOL_LABELS = {"mcp.*": "outside", "http_*": "outside"}
_VERIFIED = "verified."
_LABEL = re.compile(r"[a-z][a-z0-9_-]{0,31}\Z")


@dataclass(frozen=True, kw_only=True)
class TrustRule:
    """A rule for the trust label of an author's texts."""

    from_: str = make_field("*", "Its author: the name of a folder, or a pattern: desk-*.", key="from")
    when: dict[str, Any] = make_field(
        dict, "For channels: a condition on what the channel has verified, such as verified.domain."
    )
    is_: str = field(metadata=describe_field("How far they are trusted: a word of `order`.", key="is"))
    may_be_absent: bool = make_field(False, "Allow an author that does not exist yet.")

    def __post_init__(self) -> None:
        if self.when:
            for error in validate_condition(self.when):
                raise TypeMismatch(error.message, at=f"/when{error.pointer}", hint=error.hint)
            if claimed := [name for name in iter_fields(self.when) if not name.startswith(_VERIFIED)]:
                message = f'a rule must test verified fields, got "{claimed[0]}", which the sender may forge'
                hint = f'write "field": "verified.{claimed[0]}" if the channel verifies it'
                raise TypeMismatch(message, at="/when", hint=hint)


@dataclass(frozen=True, kw_only=True)
class TrustSettings:
    """The trust settings of an organisation: labels by source (docs/security.md)."""

    order: list[str] = make_field(
        lambda: [*ORDER],
        'The labels, the least trusted first: it begins with "outside", ends with "owner", and has '
        '"agent" between them.',
        max_length=16,
    )
    rules: list[TrustRule] = make_field(
        list,
        "The first matching rule sets the label of an author. Default: people owner, agents agent, channels outside.",
    )
    tools: dict[str, str] = make_field(
        dict, "Labels of the results of tools, by name or pattern; mcp.* and http_* are outside."
    )
    may_be_absent: bool = make_field(False, "Allow `tools` to name tools that do not exist yet.")

    def __post_init__(self) -> None:
        order, message = self.order, ""
        if order[:1] != ["outside"] or order[-1:] != ["owner"] or "agent" not in order:
            message = '"order" must start with "outside", end with "owner", and have "agent" between them'
        if invalid := next((label for label in order if not _LABEL.match(label) or order.count(label) > 1), None):
            message = f'a label must be unique and consist of a-z, 0-9, - and _, got "{invalid}"'
        if message:
            raise TypeMismatch(message, at="/order", hint=f"write {', '.join(ORDER)}, for example")
        located_labels = [(f"/rules/{number}/is", rule.is_) for number, rule in enumerate(self.rules)]
        located_labels += [(f"/tools/{escape_pointer_key(pattern)}", label) for pattern, label in self.tools.items()]
        for pointer, label in located_labels:
            if label not in order:
                message = f'expected a label of order ({", ".join(order)}), got "{label}"'
                hint = did_you_mean(label, order) or f'write "{order[0]}", for example'
                raise TypeMismatch(message, at=pointer, hint=hint)


@dataclass(frozen=True, kw_only=True)
class TrustOrgSettings:
    """The settings of trust in `config/org.json`."""

    trust: TrustSettings | None = make_field(None, "Trust tracking: labels and rules; null: off.")


@dataclass(frozen=True, kw_only=True)
class AgentTrustSettings:
    """The trust settings of an agent: the minimum label for inputs of clean turns."""

    clean: str = field(
        metadata=describe_field(
            "A label of `order`. Turns for requests with this label or a higher one are shown no text "
            "with a lower label, except answers that can hold no sentence."
        )
    )


@dataclass(frozen=True, kw_only=True)
class TrustResumeSettings:
    """The settings of trust in a resume."""

    trust: AgentTrustSettings | None = make_field(
        None, "Limit on the less trusted texts that a turn is shown; null: none."
    )


def get_minimum_label(agent: Agent) -> str:
    """Return the minimum trust label for inputs of an agent's clean turns, empty without clean turns."""
    trust_settings: AgentTrustSettings | None = agent.extensions.get(TRUST)
    return trust_settings.clean if trust_settings else ""


def get_trust_settings(settings: OrgSettings) -> TrustSettings | None:
    """Return the trust settings of an organisation, or None without trust tracking."""
    trust_settings: TrustSettings | None = settings.extensions.get(TRUST)
    return trust_settings
