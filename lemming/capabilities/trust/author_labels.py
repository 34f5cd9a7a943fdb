"""Assign trust labels to the texts of authors, by the kind of author and by the organisation's rules."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from lemming.capabilities.trust.trust_settings import AGENT, TOOL_LABELS, TrustOrder, get_trust_settings
from lemming.ext import ConfigError, TickContext
from lemming.kernel.agents import Agent
from lemming.kernel.base import paths
from lemming.kernel.base.name_patterns import is_match
from lemming.kernel.files.canonical_path import canonical_path
from lemming.kernel.memory import Memories
from lemming.kernel.messages import EntryName, OutboxEntry, list_outbox
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation
from lemming.libraries.conditions.predicates import evaluate
from lemming.libraries.outbox_files import read_entry

# An endorsement is an entry of a person. `payload.vouches_for` names an entry (`author/tick_id`), a memory or a file. For a
# memory or a file, `payload.sha256` is the digest of the endorsed content: later content is not endorsed.
KEY, DIGEST = "vouches_for", "sha256"


class Endorsement(NamedTuple):
    """A person's endorsement of a subject. `entry`: the identity of the endorsing entry."""

    subject: str
    sha256: str
    person: str
    entry: str


class EndorsementLog:
    """The endorsements of an organisation's persons: `org.own(EndorsementLog)`. Each entry is read once."""

    def __init__(self, org: Organisation) -> None:
        self._org = org
        self._read: dict[EntryName, Endorsement | None] = {}

    def iter_from_people(self, people: Iterable[str], last_tick: int) -> Iterator[Endorsement]:
        """Yield the endorsements of persons in entries up to a tick, from the current outboxes."""
        for person in people:
            for name in list_outbox(self._org, person):
                if name.tick <= last_tick and (endorsement := self._read_endorsement(name)):
                    yield endorsement

    def is_endorsement(self, name: EntryName) -> bool:
        """Return True if an entry contains an endorsement."""
        return self._read_endorsement(name) is not None

    def _read_endorsement(self, name: EntryName) -> Endorsement | None:
        if name not in self._read:
            try:
                entry = read_entry(self._org, name)
                subject, digest = entry.payload.get(KEY), entry.payload.get(DIGEST, "")
                self._read[name] = None
                if isinstance(subject, str) and isinstance(digest, str) and (digest or is_entry_identity(subject)):
                    self._read[name] = Endorsement(subject, digest, entry.agent, entry.identity)
            except ConfigError:
                self._read[name] = None
            except FileNotFoundError:
                return None
        return self._read[name]


def is_entry_identity(subject: str) -> bool:
    """Return True if an endorsed subject is an entry. Entries never change.

    >>> is_entry_identity("mail/00000042_a6049e5decfa"), is_entry_identity("shared/notes.txt")
    (True, False)
    """
    author, _, name = subject.partition("/")
    tick, _, ident = name.partition("_")
    return author != "shared" and len(tick) >= 8 and tick.isdigit() and ident.isalnum()


def build_payload(subject: str, digest: str) -> Mapping[str, Any]:
    """Return the payload of a person's endorsement."""
    return {KEY: subject, **({DIGEST: digest} if digest else {}), "text": f"I vouch for {subject}."}


OUTSIDE, OWNER = "outside", "owner"


class OrgTrustLabeler:
    """Trust labeler for an organisation with trust tracking, based on the resumes of one tick's view."""

    def __init__(self, org: Organisation, config: Config, resumes: Mapping[str, Agent], tick: int) -> None:
        settings = get_trust_settings(config.org)
        assert settings, "labelers are only made with trust tracking"
        self._org, self._tick, self._settings = org, tick, settings
        self.order = TrustOrder(tuple(settings.order))
        self._config, self._resumes = config, resumes
        self._author_labels: dict[str, str] = {}

    def entry_label(self, entry: OutboxEntry) -> str:
        """Return the trust label of an entry: the label in the entry's tag, at most the author's label."""
        # A tag can only lower the label: an author can write any tag by hand.
        label = self.order.lowest((self.author_label(entry.agent, entry), self.order.lowest_in_tags(entry.tags)))
        return self.apply_endorsements(label, entry.identity)

    def memory_labels(self, agent_name: str, memories: Memories) -> dict[str, str]:
        """Return the trust labels of an agent's labelled memories, by key."""
        labels = {}
        for key, label in memories.trust.items():
            file, digest = paths.memory_file(agent_name, key), memories.digests[key]
            labels[key] = self.apply_endorsements(self.order.normalize(label), file, digest.__str__)
        return labels

    def apply_endorsements(self, label: str, subject: str, digest: Callable[[], str] = str) -> str:
        """Return a label, raised to the label of the highest-ranked person with an endorsement of the subject.

        `digest` returns the SHA-256 of the content, for all subjects except entries.
        """
        if not self.order.is_untrusted(label):
            return label
        labels = [
            self.author_label(endorsement.person)
            for endorsement in self._endorsements.get(subject, ())
            if not endorsement.sha256 or endorsement.sha256 == digest()
        ]
        return max([label, *labels], key=self.order.rank)

    @cached_property
    def _endorsements(self) -> dict[str, list[Endorsement]]:
        """The endorsements by trusted persons, by subject. A trusted person has at least the label of agents."""
        people = [name for name, agent in self._resumes.items() if self._config.is_person(agent)]
        by_subject: dict[str, list[Endorsement]] = {}
        for endorsement in self._org.get_cache(EndorsementLog).iter_from_people(people, self._tick):
            if not self.order.is_untrusted(self.author_label(endorsement.person)):
                by_subject.setdefault(endorsement.subject, []).append(endorsement)
        return by_subject

    def author_label(self, author: str, entry: OutboxEntry | None = None) -> str:
        """Return the trust label of an author; for a channel's entry, the label given by verified fields."""
        if entry is not None and author in self._channel_agents:
            # Not cached by author: each entry of a channel has its own verified fields.
            return self._match_rule(author, entry) or OUTSIDE
        if author not in self._author_labels:
            self._author_labels[author] = self._match_rule(author, None) or self._default_label(author)
        return self._author_labels[author]

    @cached_property
    def folder_labels(self) -> dict[str, str]:
        """The trust labels of folders with files from untrusted authors, by folder."""
        untrusted = {name: label for name in self._resumes if self.order.is_untrusted(label := self.author_label(name))}
        labels = {paths.workspace_folder(name): label for name, label in untrusted.items()}
        # A folder channel keeps what it receives where its settings say, which may be outside its workspace.
        for name in untrusted.keys() & self._channel_agents:
            folder = self._config.models[self._resumes[name].model.key].options.get("path")
            if isinstance(folder, str):
                labels[canonical_path(self._org.base, os.path.expanduser(folder))] = untrusted[name]
        return labels

    def tool_label(self, name: str) -> str:
        """Return the trust label of a tool's results by the tool's name, empty without a setting."""
        for patterns in (self._settings.tools, TOOL_LABELS):
            matches = [pattern for pattern in patterns if is_match(name, pattern)]
            if matches:
                return patterns[max(matches, key=lambda pattern_: ("*" not in pattern_, len(pattern_)))]
        return ""

    def _match_rule(self, author: str, entry: OutboxEntry | None) -> str:
        """Return the label of the first matching rule, empty without a match."""
        verified = entry.payload.get("verified") if entry else None
        facts = {"verified": verified if isinstance(verified, dict) else {}}
        for rule in self._settings.rules:
            if is_match(author, rule.from_) and (not rule.when or (entry and evaluate(rule.when, facts))):
                return rule.is_
        return ""

    def _default_label(self, author: str) -> str:
        """Return the default label of an author; the lowest label without a valid resume."""
        resume = self._resumes.get(author)
        if resume is None or self._config.is_channel(resume):
            return OUTSIDE
        return OWNER if self._config.is_person(resume) else AGENT

    @cached_property
    def _channel_agents(self) -> frozenset[str]:
        return self._config.find_channels(self._resumes)


def make_labeler(tick_context: TickContext) -> OrgTrustLabeler:
    """Return the trust labeler of a tick, for `TickContext.own`: the same labeler for all turns."""
    return OrgTrustLabeler(tick_context.org, tick_context.config, tick_context.mail.resumes, tick_context.tick)


def make_entry_labels(
    org: Organisation, config: Config, resumes: Mapping[str, Agent], tick: int
) -> Callable[[OutboxEntry], str]:
    """Return a function from an entry to its trust label."""
    return OrgTrustLabeler(org, config, resumes, tick).entry_label
