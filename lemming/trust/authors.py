"""How far the texts of authors are trusted: by who speaks for them, and by the organisation's rules."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from lemming.agents import Agent
from lemming.config import Config
from lemming.messages import OutboxEntry
from lemming.org_blocks import TRUST_OF_TOOLS, Trust
from lemming.patterns import is_named
from lemming.providers import is_channel, is_person
from lemming.trust.order import AGENT, TrustOrder
from lemming.when import holds

OUTSIDE, OWNER = "outside", "owner"


class Authors:
    """The authors of an organisation that tracks trust, by the resumes of one look at it."""

    def __init__(self, config: Config, resumes: Mapping[str, Agent]) -> None:
        assert config.org.trust, "who tracks no trust is not asked"
        self.settings: Trust = config.org.trust
        self.order = TrustOrder(tuple(self.settings.order))
        self._config, self._resumes = config, resumes
        self._bases: dict[str, str] = {}

    def of_entry(self, entry: OutboxEntry) -> str:
        """Return how far an entry is trusted: as its tag says, never above its author's base."""
        return self.order.lowest((self.of_author(entry.agent, entry), self.order.in_tags(entry.tags)))

    def of_author(self, author: str, entry: OutboxEntry | None = None) -> str:
        """Return an author's base; with an entry of a channel, as what the channel verified makes it."""
        if entry is not None and author in self._channels:
            return self._ruled(author, entry) or OUTSIDE
        if author not in self._bases:
            self._bases[author] = self._ruled(author, None) or self._kind_of(author)
        return self._bases[author]

    def of_tool(self, name: str) -> str:
        """Return how far what a tool gives is trusted by its name; empty where nothing says so."""
        for said in (self.settings.tools, TRUST_OF_TOOLS):
            fitting = [pattern for pattern in said if is_named(name, pattern)]
            if fitting:
                return said[max(fitting, key=lambda it: ("*" not in it, len(it)))]
        return ""

    def _ruled(self, author: str, entry: OutboxEntry | None) -> str:
        """Return what the first rule that fits says; empty where none does."""
        verified = entry.payload.get("verified") if entry else None
        seen = {"verified": verified if isinstance(verified, dict) else {}}
        for rule in self.settings.rules:
            if is_named(author, rule.from_) and (not rule.when or (entry and holds(rule.when, seen))):
                return rule.is_
        return ""

    def _kind_of(self, author: str) -> str:
        """Return the base of an author that no rule names; of one without a sound resume, the lowest."""
        resume, config = self._resumes.get(author), self._config
        entry = config.models.get(resume.model.key) if resume else None
        if resume is None:
            return OUTSIDE
        if entry is not None and is_channel(entry.provider, config.org.plugins):
            return OUTSIDE
        is_owner = entry is not None and is_person(entry.provider, config.org.plugins)
        return OWNER if is_owner else AGENT

    @cached_property
    def _channels(self) -> frozenset[str]:
        models, plugins = self._config.models, self._config.org.plugins
        keys = {key for key, entry in models.items() if is_channel(entry.provider, plugins)}
        return frozenset(name for name, resume in self._resumes.items() if resume.model.key in keys)
