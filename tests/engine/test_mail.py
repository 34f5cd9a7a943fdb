"""A turn is shown what the plain model shows, whatever is in the outboxes and has been shown before."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plain_mail import PlainMail
from sampling import EVERYTHING

from lemming.kernel.agents import Agent
from lemming.kernel.inboxes.inbox import Inbox, build_inbox, has_unread
from lemming.kernel.inboxes.reader_view import ReaderView
from lemming.kernel.inboxes.visibility import MailView
from lemming.kernel.journal.read_cursor import ReadMark
from lemming.kernel.messages import ENTRIES_PER_TURN, EntryName, OutboxEntry, entry_id
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.org.resume import AgentPermissions
from lemming.messages import write_outbox_entry

NAMES = ["ada", "bob", "cyd", "dan"]
TICKS = 7  # entries are of ticks 0 to 6; the tick under way is one of them

texts = st.sampled_from(["", "short", "a longer text of some forty characters"])
ticks = st.integers(0, TICKS - 1)
patterns = st.lists(st.sampled_from([*NAMES, "*", "gone"]), unique=True, max_size=5)
readable = st.one_of(st.just(["*"]), patterns)


@dataclass(frozen=True)
class Written:
    """A file in an outbox: an entry, or something that cannot be read."""

    author: str
    tick: int
    index: int
    text: str
    by_hand: bool
    is_broken: bool
    target: object = None

    @property
    def id(self) -> str:
        if self.by_hand:
            return "hand" if self.index else f"hand{self.author}"  # the same in every tick, and by others
        return entry_id(self.tick, self.author, self.index)

    @property
    def entry(self) -> OutboxEntry:
        return OutboxEntry(self.id, self.tick, self.author, "message", self.payload, [], "")

    @property
    def payload(self) -> dict[str, object]:
        target = list(self.target) if isinstance(self.target, tuple) else self.target
        return {"text": self.text, **({} if target is None else {"target": target})}

    @property
    def name(self) -> EntryName:
        return EntryName(self.tick, ENTRIES_PER_TURN if self.by_hand else self.index, self.id, self.author)

    def put(self, base: Path) -> None:
        path = write_outbox_entry(base, self.author, self.entry)
        if self.is_broken:
            path.write_bytes(b"{")

    def remove(self, base: Path) -> None:
        (base / self.entry.file).unlink()


none: st.SearchStrategy[frozenset[EntryName]] = st.just(frozenset())
written = st.builds(
    Written,
    author=st.sampled_from(NAMES),
    tick=ticks,
    index=st.integers(0, 2),
    text=texts,
    by_hand=st.sampled_from([False, False, False, True]),
    is_broken=st.sampled_from([False, False, False, False, True]),
    target=st.sampled_from(
        [None, None, None, "ada", " Bob", ("cyd", "ada"), "nobody", "*", ("dan", "all"), 7, ("gone",), "odd"]
    ),
)
files = st.lists(written, max_size=30, unique_by=lambda one: one.entry.file)


@dataclass(frozen=True)
class Rules:
    tick: int
    order: list[str]
    firing: list[str]
    visibility: Literal["order", "tick"]
    readable: dict[str, list[str]]
    limit: int
    chars: int
    persons: tuple[str, ...] = ()

    def both(self, org: Organisation) -> tuple[MailView, PlainMail]:
        tick, order, firing, seen = self.tick, self.order, self.firing, self.visibility
        both = [
            mail(org, tick=tick, order=order, firing=firing, visibility=seen, persons=self.persons, broken=["odd"])
            for mail in (MailView, PlainMail)
        ]
        return both[0], both[1]

    def reader(self, name: str) -> Agent:
        permissions = AgentPermissions(read_outboxes=self.readable[name])
        return Agent(name=name, instructions="x", permissions=permissions)


rules = st.builds(
    Rules,
    tick=ticks,
    order=st.permutations(NAMES),
    firing=st.lists(st.sampled_from(NAMES), unique=True),
    visibility=st.sampled_from(["order", "tick"]),
    readable=st.fixed_dictionaries(dict.fromkeys(NAMES, readable)),
    limit=st.integers(1, 6),
    chars=st.sampled_from([1, 40, 120, 10_000]),
    persons=st.sampled_from([(), ("cyd",), ("ada", "dan")]),
)


@st.composite
def marks(draw: st.DrawFn, there: list[Written], tick: int) -> ReadMark:
    names = st.frozensets(st.sampled_from([one.name for one in there]), max_size=6) if there else none
    through = draw(st.dictionaries(st.sampled_from([*NAMES, "*", "gone"]), st.integers(-1, tick - 1), max_size=3))
    if draw(st.integers(0, 3)) == 0:  # as version 0.1 wrote it
        ids = draw(names)
        return ReadMark(through, frozenset(name.id for name in ids), frozenset(name.id for name in draw(names)))
    also, unusable = (frozenset(name.identity for name in draw(names)) for _ in range(2))
    return ReadMark(through, also, unusable)


def inbox(mail: MailView, reader: Agent, mark: ReadMark, rule: Rules) -> Inbox:
    return build_inbox(ReaderView(mail, reader, mark), limit=rule.limit, chars=rule.chars)


@contextmanager
def organisation(there: list[Written]) -> Iterator[Path]:
    base = Path(tempfile.mkdtemp(prefix="lemming-mail-"))
    try:
        for one in there:
            one.put(base)
        yield base
    finally:
        shutil.rmtree(base)


def test_an_entry_that_is_gone_when_the_inbox_is_full_is_still_unread(tmp_path: Path) -> None:
    gone, shown = (Written("bob", 1, index, "x", by_hand=False, is_broken=False) for index in (0, 1))
    rule = Rules(2, NAMES, ["ada"], "order", {"ada": ["bob"]}, limit=1, chars=100)
    org = Organisation(tmp_path)
    mail, _ = rule.both(org)
    for one in (gone, shown):
        one.put(tmp_path)
    mail.scan_outboxes([rule.reader("ada")])
    gone.remove(tmp_path)
    box = inbox(mail, rule.reader("ada"), ReadMark(), rule)
    assert ([entry.id for entry in box.unread], box.waiting) == ([shown.id], 1)
    gone.put(tmp_path)
    later, _ = Rules(**{**vars(rule), "tick": 3}).both(org)
    box = inbox(later, rule.reader("ada"), box.mark, rule)
    assert [entry.id for entry in box.unread] == [gone.id]


@settings(max_examples=150 if EVERYTHING else 20, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), there=files, rule=rules)
def test_a_turn_is_shown_what_the_plain_model_shows(data: st.DataObject, there: list[Written], rule: Rules) -> None:
    mark = data.draw(st.fixed_dictionaries({name: marks(there, rule.tick) for name in NAMES}))
    with organisation(there) as base:
        fast, plain = rule.both(Organisation(base))
        readers = [rule.reader(name) for name in rule.firing or NAMES]
        fast.scan_outboxes(readers)
        plain.open_for(readers)
        for one in data.draw(st.lists(st.sampled_from(there), unique=True, max_size=3)) if there else ():
            one.remove(base)  # by hand, while the tick goes on
        for reader in readers:
            seen = mark[reader.name]
            assert has_unread(ReaderView(fast, reader, seen)) == plain.has_unread(reader, seen)
            expected = plain.inbox(reader, seen, limit=rule.limit, chars=rule.chars)
            assert inbox(fast, reader, seen, rule) == expected
            if reader.name in rule.firing:
                said = [Written(reader.name, rule.tick, 0, "said", by_hand=False, is_broken=False).entry]
                fast.add(reader.name, said)
                plain.add(reader.name, said)


@settings(max_examples=60 if EVERYTHING else 8, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), rule=rules)
def test_ticks_in_a_row_show_what_the_plain_model_shows_while_files_come_and_go(
    data: st.DataObject, rule: Rules
) -> None:
    mark = dict.fromkeys(NAMES, ReadMark())
    with organisation([]) as base:
        org = Organisation(base)
        for tick in range(TICKS):
            for one in data.draw(st.lists(written, max_size=6)):
                one.put(base)
            for file in sorted(base.glob("agents/*/outbox/*.json")):
                if data.draw(st.integers(0, 9)) == 0:
                    file.unlink()
            this = Rules(**{**vars(rule), "tick": tick})
            fast, plain = this.both(org)
            readers = [this.reader(name) for name in rule.firing]
            fast.scan_outboxes(readers)
            plain.open_for(readers)
            for reader in readers:
                seen = mark[reader.name]
                expected = plain.inbox(reader, seen, limit=rule.limit, chars=rule.chars)
                assert inbox(fast, reader, seen, rule) == expected
                mark[reader.name] = expected.mark
                spoken = Written(reader.name, tick, 0, "said", by_hand=False, is_broken=False)
                spoken.put(base)
                fast.add(reader.name, [spoken.entry])
                plain.add(reader.name, [spoken.entry])
