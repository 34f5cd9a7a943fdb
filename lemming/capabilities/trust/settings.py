"""The key `trust` of `config/org.json`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from lemming.capabilities.conditions.when import fields_in, problems_of
from lemming.capabilities.trust.words import TRUST
from lemming.kernel.agents import Agent
from lemming.kernel.base.jsontext import escaped, nearest
from lemming.kernel.files.fitting import Misfit, about, keyed
from lemming.kernel.org.config import Org

ORDER = ("outside", "known", "agent", "owner")
OF_TOOLS = {"mcp.*": "outside", "http_*": "outside"}
_VERIFIED = "verified."
_WORD = re.compile(r"[a-z][a-z0-9_-]{0,31}\Z")


@dataclass(frozen=True, kw_only=True)
class TrustRule:
    """How far the texts of an author are trusted."""

    from_: str = field(
        default="*", metadata=keyed("from", "Its author: the name of a folder, or a pattern: desk-*.")
    )
    when: dict[str, Any] = field(
        default_factory=dict,
        metadata=about("For channels: a condition over what the channel has verified: verified.domain."),
    )
    is_: str = field(metadata=keyed("is", "How far they are trusted: a word of `order`."))
    may_be_absent: bool = field(
        default=False, metadata=about("Whether that author may be absent: for one who comes later.")
    )

    def __post_init__(self) -> None:
        if self.when:
            for wrong in problems_of(self.when):
                raise Misfit(wrong.message, at=f"/when{wrong.pointer}", hint=wrong.hint)
            if claimed := [name for name in fields_in(self.when) if not name.startswith(_VERIFIED)]:
                message = f'"{claimed[0]}" is only claimed: a rule looks at verified.... alone'
                raise Misfit(
                    message, at="/when", hint=f'"field": "verified.{claimed[0]}", if the channel does'
                )


@dataclass(frozen=True, kw_only=True)
class Trust:
    """How far texts are trusted, by where they come from: docs/trust.md."""

    order: list[str] = field(
        default_factory=lambda: [*ORDER],
        metadata=about(
            'The words, the least trusted first: it begins with "outside", ends with "owner", and has '
            '"agent" between them.',
            max_length=16,
        ),
    )
    rules: list[TrustRule] = field(
        default_factory=list,
        metadata=about(
            "The first that fits says how far an author is trusted. Without one: people owner, agents agent, "
            "channels outside."
        ),
    )
    tools: dict[str, str] = field(
        default_factory=dict,
        metadata=about(
            "How far what tools give is trusted, by name or pattern; beside mcp.* and http_*, which are "
            "outside."
        ),
    )
    may_be_absent: bool = field(
        default=False, metadata=about("Whether `tools` may name some that are absent: for what comes later.")
    )

    def __post_init__(self) -> None:
        order = self.order
        if wrong := next((word for word in order if not _WORD.match(word) or order.count(word) > 1), None):
            message = f'"{wrong}" must be a word of a-z, 0-9, - and _, and stand there once'
            raise Misfit(message, at="/order", hint=f"such as {', '.join(ORDER)}")
        if order[:1] != ["outside"] or order[-1:] != ["owner"] or "agent" not in order:
            message = 'it begins with "outside", ends with "owner", and has "agent" between them'
            raise Misfit(message, at="/order", hint=f"such as {', '.join(ORDER)}")
        said = [(f"/rules/{number}/is", rule.is_) for number, rule in enumerate(self.rules)]
        said += [(f"/tools/{escaped(pattern)}", word) for pattern, word in self.tools.items()]
        for place, word in said:
            if word not in order:
                message = f'"{word}" is none of the words of order: {", ".join(order)}'
                raise Misfit(message, at=place, hint=nearest(word, order) or f'write "{order[0]}", say')


@dataclass(frozen=True, kw_only=True)
class OfOrg:
    """What `config/org.json` says of trust."""

    trust: Trust | None = field(
        default=None,
        metadata=about(
            "Where it stands, the engine keeps track of how far texts are trusted; null: it does not."
        ),
    )


@dataclass(frozen=True, kw_only=True)
class AgentTrust:
    """What an agent's turns are shown of what is trusted less."""

    clean: str = field(
        metadata=about(
            "A word of `order`. Turns for requests that are trusted so far, or further, are shown nothing "
            "that is trusted less, but for answers that can hold no sentence."
        )
    )


@dataclass(frozen=True, kw_only=True)
class OfResume:
    """What a resume says of trust."""

    trust: AgentTrust | None = field(
        default=None, metadata=about("What turns are shown of texts that are trusted less; null: all.")
    )


def least_shown(agent: Agent) -> str:
    """Return how far all is trusted that an agent's clean turns are shown; empty: it has none."""
    found: AgentTrust | None = agent.further.get(TRUST)
    return found.clean if found else ""


def trust_in(settings: Org) -> Trust | None:
    """Return what the settings say of trust; None where nobody tracks it."""
    found: Trust | None = settings.further.get(TRUST)
    return found
