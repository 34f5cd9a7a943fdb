"""What a line of the table of capabilities says: `lemming.kernel.plugins.shipped`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

NO_KEYS: Mapping[str, str] = {}


class TableLine(NamedTuple):
    """A line of the table. `resume`: the keys of a resume that it reads, each with the class that has it as a
    field; `org`: likewise of `config/org.json`. `members`: those of one of a team, each with a function that
    reads its value, and is told where that stands.

    `place`, and each class, are a module and a name in it. `gates`: the words of a gate's `then` that it
    answers, `turn` the keys of a resume's `turn` that are its own, `schedule` those of its `schedule`, each
    with what says whether something is wrong with a value; `commands` those that need it. `requests`: a path
    in the payload of a request; who writes there makes a request of its. `needs`: others that have to be here
    too. `begins`: it may ask, or show, before a turn's own first question. `awaits`: it says of
    entries past their retention that somebody waits for them. `after`: those that are asked before it, at
    every moment at which both take part. `used` says of an agent and all settings whether it takes part,
    beside what keys and words say; `is_asked_for` of who asked, and the payload of the request; `takes_part`
    of what a turn starts from, where it gives nothing of its own.

    `backends` are providers that ask models: they have no part in a turn. `providers` are those that a model
    key may name, an agent with one uses it; `asks_no_model`: they work out their answers themselves. `model`:
    the keys of a line of `config/models.json` that are its own; `records`: the kinds of records that it
    writes; `executors`: values of `executor` in `config/org.json`, each with what has others make the model
    calls; `pricing`: what says what a call costs in dollars, of lines that say a price, and of providers that
    are `priced`; `servers`: what knows what servers do not take of a request. `tick` is its part in ticks
    (`tick.seams`). `files`: those of the organisation that it alone reads; `formats`: classes that
    files are read as; `removes`: patterns of files that it removes. `strategies`: those that it brings;
    `by_memory`: those of them that go by what they keep in memories.

    `tools` are those that it brings, `source` is where further ones come from (a `ToolSource`), and
    `of_functions` what makes one of a function. `granted`: tools that a key of the resume grants; `writers`:
    those whose calls have the turn write entries. `brings` says of the settings and the resumes whether there
    may be any of the source's; names of a server's begin with `prefix`. `carrier` carries messages in and out
    between ticks. `reaches` says of all settings and the agents whether it may do something outside the
    organisation's folder.
    """

    name: str
    place: str
    resume: Mapping[str, str] = NO_KEYS
    org: Mapping[str, str] = NO_KEYS
    members: Mapping[str, str] = NO_KEYS
    gates: frozenset[str] = frozenset()
    turn: tuple[str, ...] = ()
    schedule: Mapping[str, str] = NO_KEYS
    commands: tuple[str, ...] = ()
    requests: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    begins: bool = False
    awaits: bool = False
    after: tuple[str, ...] = ()
    used: Callable[[Any, Any], Any] | None = None
    is_asked_for: Callable[[Any, Mapping[str, Any]], Any] | None = None
    takes_part: Callable[[Any], Any] | None = None
    backends: Mapping[str, str] = NO_KEYS
    providers: Mapping[str, str] = NO_KEYS
    asks_no_model: bool = False
    by_memory: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    records: Mapping[str, str] = NO_KEYS
    executors: Mapping[str, str] = NO_KEYS
    pricing: str = ""
    servers: str = ""
    priced: tuple[str, ...] = ()
    tick: str = ""
    files: tuple[str, ...] = ()
    formats: Mapping[str, str] = NO_KEYS
    removes: tuple[str, ...] = ()
    strategies: Mapping[str, str] = NO_KEYS
    tools: Mapping[str, str] = NO_KEYS
    granted: Mapping[str, str] = NO_KEYS
    writers: tuple[str, ...] = ()
    source: str = ""
    prefix: str = ""
    brings: Callable[[Any, Any], Any] | None = None
    of_functions: str = ""
    carrier: str = ""
    reaches: Callable[[Any, Any], Any] | None = None

    @property
    def folder(self) -> str:
        """The package that holds all of it."""
        return self.place.rpartition(":")[0].rpartition(".")[0]
