"""The key `trust` of `config/org.json` and of resumes."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from lemming.capabilities.trust.trust_levels import TRUST
from lemming.ext import describe_field
from lemming.kernel.agents import Agent
from lemming.kernel.base.jsontext import did_you_mean, escape_pointer_key
from lemming.kernel.files.fast_decoder import TypeMismatch, field_with_key
from lemming.kernel.org.config import OrgSettings
from lemming.libraries.conditions.predicates import iter_fields, validate_condition

ORDER = ("outside", "known", "agent", "owner")
TOOL_LABELS = {"mcp.*": "outside", "http_*": "outside"}
_VERIFIED = "verified."
_LABEL = re.compile(r"[a-z][a-z0-9_-]{0,31}\Z")


@dataclass(frozen=True, kw_only=True)
class TrustRule:
    """A rule for the trust label of an author's texts."""

    from_: str = field(
        default="*", metadata=field_with_key("from", "Its author: the name of a folder, or a pattern: desk-*.")
    )
    when: dict[str, Any] = field(
        default_factory=dict,
        metadata=describe_field("For channels: a condition on what the channel has verified, such as verified.domain."),
    )
    is_: str = field(metadata=field_with_key("is", "How far they are trusted: a word of `order`."))
    may_be_absent: bool = field(default=False, metadata=describe_field("Allow an author that does not exist yet."))

    def __post_init__(self) -> None:
        if self.when:
            for error in validate_condition(self.when):
                raise TypeMismatch(error.message, at=f"/when{error.pointer}", hint=error.hint)
            if claimed := [name for name in iter_fields(self.when) if not name.startswith(_VERIFIED)]:
                message = f'a rule must test verified fields, got "{claimed[0]}", which the sender may forge'
                raise TypeMismatch(
                    message, at="/when", hint=f'write "field": "verified.{claimed[0]}" if the channel verifies it'
                )


@dataclass(frozen=True, kw_only=True)
class TrustSettings:
    """The trust settings of an organisation: labels by source (docs/trust.md)."""

    order: list[str] = field(
        default_factory=lambda: [*ORDER],
        metadata=describe_field(
            'The labels, the least trusted first: it begins with "outside", ends with "owner", and has '
            '"agent" between them.',
            max_length=16,
        ),
    )
    rules: list[TrustRule] = field(
        default_factory=list,
        metadata=describe_field(
            "The first matching rule sets the label of an author. Default: people owner, agents agent, "
            "channels outside."
        ),
    )
    tools: dict[str, str] = field(
        default_factory=dict,
        metadata=describe_field("Labels of the results of tools, by name or pattern; mcp.* and http_* are outside."),
    )
    may_be_absent: bool = field(
        default=False, metadata=describe_field("Allow `tools` to name tools that do not exist yet.")
    )

    def __post_init__(self) -> None:
        order = self.order
        if invalid := next((label for label in order if not _LABEL.match(label) or order.count(label) > 1), None):
            message = f'a label must be unique and consist of a-z, 0-9, - and _, got "{invalid}"'
            raise TypeMismatch(message, at="/order", hint=f"write {', '.join(ORDER)}, for example")
        if order[:1] != ["outside"] or order[-1:] != ["owner"] or "agent" not in order:
            message = '"order" must start with "outside", end with "owner", and have "agent" between them'
            raise TypeMismatch(message, at="/order", hint=f"write {', '.join(ORDER)}, for example")
        located_labels = [(f"/rules/{number}/is", rule.is_) for number, rule in enumerate(self.rules)]
        located_labels += [(f"/tools/{escape_pointer_key(pattern)}", label) for pattern, label in self.tools.items()]
        for pointer, label in located_labels:
            if label not in order:
                message = f'expected a label of order ({", ".join(order)}), got "{label}"'
                raise TypeMismatch(
                    message, at=pointer, hint=did_you_mean(label, order) or f'write "{order[0]}", for example'
                )


@dataclass(frozen=True, kw_only=True)
class TrustOrgSettings:
    """The settings of trust in `config/org.json`."""

    trust: TrustSettings | None = field(
        default=None, metadata=describe_field("Trust tracking: labels and rules; null: off.")
    )


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

    trust: AgentTrustSettings | None = field(
        default=None, metadata=describe_field("Limit on the less trusted texts that a turn is shown; null: none.")
    )


def get_minimum_label(agent: Agent) -> str:
    """Return the minimum trust label for inputs of an agent's clean turns, empty without clean turns."""
    trust_settings: AgentTrustSettings | None = agent.extensions.get(TRUST)
    return trust_settings.clean if trust_settings else ""


def get_trust_settings(settings: OrgSettings) -> TrustSettings | None:
    """Return the trust settings of an organisation, or None without trust tracking."""
    trust_settings: TrustSettings | None = settings.extensions.get(TRUST)
    return trust_settings
