"""How far the texts of authors are trusted: by who speaks for them, and by the organisation's rules."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cached_property

from lemming.capabilities.conditions.when import holds
from lemming.capabilities.trust.settings import OF_TOOLS, trust_in
from lemming.capabilities.trust.vouches import Vouch, Vouches
from lemming.capabilities.trust.words import AGENT, TrustOrder
from lemming.kernel.agents import Agent
from lemming.kernel.base.paths import memory_file, workspace_folder
from lemming.kernel.base.patterns import is_named
from lemming.kernel.files.real_place import opened_place
from lemming.kernel.memory import Memories
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.providers import is_channel, is_person
from lemming.kernel.turn.opening import Surroundings

OUTSIDE, OWNER = "outside", "owner"


class Authors:
    """The authors of an organisation that tracks trust, by the resumes of one look at it in a tick."""

    usual = AGENT

    def __init__(self, org: Organisation, config: Config, resumes: Mapping[str, Agent], tick: int) -> None:
        trust = trust_in(config.org)
        assert trust, "who tracks no trust is not asked"
        self._org, self._tick = org, tick
        self.settings = trust
        self.order = TrustOrder(tuple(self.settings.order))
        self._config, self._resumes = config, resumes
        self._bases: dict[str, str] = {}

    def known(self, word: str) -> str:
        """Return a word as it is, if it is one of the order, else the least trusted."""
        return self.order.known(word)

    def of_entry(self, entry: OutboxEntry) -> str:
        """Return how far an entry is trusted: as its tag says, never above its author's base."""
        word = self.order.lowest((self.of_author(entry.agent, entry), self.order.in_tags(entry.tags)))
        return self.vouched(word, entry.identity)

    def of_memories(self, agent_name: str, memories: Memories) -> dict[str, str]:
        """Return how far an agent's memories are trusted, of those that say so, by key."""
        found = {}
        for key, word in memories.trust.items():
            file, digest = memory_file(agent_name, key), memories.digests[key]
            found[key] = self.vouched(self.order.known(word), file, digest.__str__)
        return found

    def vouched(self, word: str, what: str, digest: Callable[[], str] = str) -> str:
        """Return how far something is trusted that is trusted so, unless somebody vouches for it.

        `digest` gives the SHA-256 of what it holds, for all but entries.
        """
        if not self.order.is_low(word):
            return word
        found = [it for it in self._vouches.get(what, ()) if not it.sha256 or it.sha256 == digest()]
        return max([word, *(self.of_author(it.person) for it in found)], key=self.order.rank)

    @cached_property
    def _vouches(self) -> dict[str, list[Vouch]]:
        """What people vouch for who are trusted as far as agents are, or further."""
        people = [name for name in self._resumes if self._is_person(name)]
        by_what: dict[str, list[Vouch]] = {}
        for vouch in self._org.own(Vouches).by(people, self._tick):
            if not self.order.is_low(self.of_author(vouch.person)):
                by_what.setdefault(vouch.what, []).append(vouch)
        return by_what

    def _is_person(self, name: str) -> bool:
        entry = self._config.models.get(self._resumes[name].model.key)
        return entry is not None and is_person(entry.provider, self._config.org.plugins)

    def of_author(self, author: str, entry: OutboxEntry | None = None) -> str:
        """Return an author's base; with an entry of a channel, as what the channel verified makes it."""
        if entry is not None and author in self._channels:
            return self._ruled(author, entry) or OUTSIDE
        if author not in self._bases:
            self._bases[author] = self._ruled(author, None) or self._kind_of(author)
        return self._bases[author]

    @cached_property
    def homes(self) -> dict[str, str]:
        """The folders whose files others write who are trusted less than agents, and how far they are."""
        low = {name: word for name in self._resumes if self.order.is_low(word := self.of_author(name))}
        found = {workspace_folder(name): word for name, word in low.items()}
        for name in low.keys() & self._channels:
            folder = self._config.models[self._resumes[name].model.key].options.get("path")
            if isinstance(folder, str):
                found[opened_place(self._org.base, os.path.expanduser(folder))] = low[name]
        return found

    def of_tool(self, name: str) -> str:
        """Return how far what a tool gives is trusted by its name; empty where nothing says so."""
        for said in (self.settings.tools, OF_TOOLS):
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
        return OWNER if self._is_person(author) else AGENT

    @cached_property
    def _channels(self) -> frozenset[str]:
        return self._config.channels_among(self._resumes)


def authors_in(now: Surroundings) -> Authors:
    """Return the authors of a look, for `Surroundings.own`: the same for all that its turns are shown."""
    return Authors(now.org, now.config, now.mail.resumes, now.tick)
