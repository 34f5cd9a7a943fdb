"""What a tool is told of its call, and what it may ask for beside its result: memories, entries, log lines.

Nothing that is asked for is written here: it is handed to the engine with the result, recorded with it, and
written with the turn. So it holds after a crash, and in a replay.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, get_args

from lemming.kernel.agents import Agent
from lemming.kernel.base import paths
from lemming.kernel.base.contract import NewEntry
from lemming.kernel.base.deadlines import NEVER, Deadline
from lemming.kernel.base.errors import ToolError
from lemming.kernel.base.jsontext import compact, nearest, parse
from lemming.kernel.base.kinds import MessageKind
from lemming.kernel.base.turn_numbers import NUMBERS_PER_TURN
from lemming.kernel.files import fs
from lemming.kernel.memory import decode_memory, list_memories, load_memory, memory_effect
from lemming.kernel.org.config import Org
from lemming.kernel.org.organisation import Organisation

LINES_LIMIT, LINE_CHARS = 200, 2000
"""How many lines of a call go into the log, and how long each may be."""


@dataclass
class CallEffects:
    """What a call asks for beside its result: memories by key, entries, lines for the log."""

    memories: dict[str, Any] = field(default_factory=dict)
    entries: list[NewEntry] = field(default_factory=list)
    lines: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    state: dict[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class ToolContext:
    """Who calls, where, and when. `staged` holds what this turn will write, by `FileEffect.place`; `removed`
    names the files that it will take away.

    `used_up`: credits gone from the agent's allowance up to now (None: its ledger tells). `worked` says
    how many calls of each tool have worked in this turn. `deadline`: when the call must be over; `stop` is
    set when the engine is to end. `began_at`: the tick's reading of the clock. `index` counts the calls of
    the turn from 0. `answered`: what was asked for what the turn is about, and has an answer: both entries,
    by identity. `look` has gates look at a whole result, before it is cut.
    """

    agent: Agent
    org: Organisation
    settings: Org
    now: str
    staged: Mapping[str, bytes] = field(default_factory=dict)
    removed: frozenset[str] = frozenset()
    used_up: float | None = None
    worked: Mapping[str, int] = field(default_factory=dict)
    tick: int = 0
    began_at: str = ""
    index: int = 0
    tool: str = ""
    deadline: Deadline = NEVER
    stop: threading.Event | None = None
    wanted: CallEffects = field(default_factory=CallEffects)
    answered: tuple[tuple[str, str], ...] = ()
    look: Callable[[Any], Any] | None = None

    @property
    def base(self) -> Path:
        """The organisation's folder."""
        return self.org.base

    @property
    def limit_s(self) -> float:
        """Seconds that the call may still take."""
        return self.deadline.remaining()

    @property
    def turn(self) -> int:
        """Which of the agent's turns in the tick calls."""
        return self.index // NUMBERS_PER_TURN

    @property
    def call_id(self) -> str:
        """Which call of the organisation it is: `TICK/AGENT/INDEX`, as `lemming repair` names it."""
        return f"{self.tick}/{self.agent.name}/{self.index}"

    @property
    def idempotency_key(self) -> str:
        """The same 32 letters for this call however often it is made, after a crash too; no other has them.

        For services that do a thing once for each key.
        """
        return sha256(f"{self.call_id} {self.tool} {self.began_at}".encode()).hexdigest()[:32]

    @property
    def workspace(self) -> Path:
        """The agent's own folder, which is made if need be."""
        folder = paths.workspace_folder(self.agent.name)
        fs.make_folder(self.base, folder)
        return self.base / folder

    def place(self, path: str) -> Path:
        """Return where a path that the agent uses leads, as file tools take it, with no link left in it.

        `@tool(places=[...])` has gates look at the same place. Whether the agent may touch it is not said.
        """
        from lemming.kernel.files.real_place import opened_place

        return self.base / opened_place(self.base, paths.place_of(self.agent.name, path))

    @property
    def memory(self) -> Memory:
        """What the agent remembers, by key. What is set is remembered when the turn ends well."""
        return Memory(self)

    @property
    def state(self) -> dict[str, Any]:
        """What this tool keeps for this agent: a dict of JSON values, as the memory `state.<tool>`."""
        if self.wanted.state is None:
            kept = self.memory.get(self.state_key, {})
            self.wanted.state = parse(compact(kept)) if isinstance(kept, dict) else {}
        return self.wanted.state

    @property
    def state_key(self) -> str:
        """The memory that keeps the state."""
        return f"state.{self.tool}"

    def emit(
        self, kind: MessageKind, payload: dict[str, Any], tags: list[str] | tuple[str, ...] = ()
    ) -> None:
        """Have an entry written into the caller's own outbox. Raises `ToolError` for what is no entry."""
        if kind not in get_args(MessageKind):
            kinds = get_args(MessageKind)
            hint = nearest(str(kind), kinds)
            raise ToolError(f"emit: {kind!r} is no kind of entry: {', '.join(kinds)}", hint=hint)
        try:
            kept = parse(compact({"payload": payload, "tags": list(tags)}))
        except (TypeError, ValueError, RecursionError) as error:
            raise ToolError(f"emit: the payload is not JSON: {error}") from error
        if not isinstance(kept["payload"], dict) or not all(isinstance(tag, str) for tag in kept["tags"]):
            raise ToolError("emit: the payload must be a dict, and tags a list of texts")
        self.wanted.entries.append(NewEntry(kind, kept["payload"], kept["tags"]))

    @property
    def log(self) -> Log:
        """Lines for the engine's log, such as `ctx.log.info("asked the server", city=city)`."""
        return Log(self.wanted.lines)

    def all_wanted(self) -> CallEffects:
        """Return what the call has asked for, its state with the memories where that has changed."""
        found = self.wanted
        if found.state is not None and found.state != self.memory.get(self.state_key, {}):
            self.memory[self.state_key] = found.state
        return found


class Memory(Mapping[str, Any]):
    """What an agent remembers, as its turn sees it; setting a key has it remembered."""

    def __init__(self, context: ToolContext) -> None:
        self._context = context

    def __getitem__(self, key: str) -> Any:
        context = self._context
        if key in context.wanted.memories:
            return context.wanted.memories[key]
        try:
            place = paths.memory_file(context.agent.name, key)
        except (ValueError, TypeError) as error:
            raise KeyError(key) from error
        if place in context.staged:
            return decode_memory(context.staged[place], place)
        if key not in list_memories(context.base, context.agent.name) or place in context.removed:
            raise KeyError(key)
        return load_memory(context.base, context.agent.name, key)

    def __setitem__(self, key: str, value: Any) -> None:
        context = self._context
        content = memory_effect(context.agent.name, key, value, context.now).content
        with suppress(KeyError):
            _ = self[key]  # a damaged file is not written over
        context.wanted.memories[key] = decode_memory(content, key)

    def __iter__(self) -> Iterator[str]:
        context, folder = self._context, f"{paths.memory_folder(self._context.agent.name)}/"
        staged = {
            place.removeprefix(folder).removesuffix(".json")
            for place in context.staged
            if place.startswith(folder)
        }
        there = set(list_memories(context.base, context.agent.name))
        return iter(sorted({*there, *staged, *context.wanted.memories}))

    def __len__(self) -> int:
        return len(list(iter(self)))


class Log:
    """Takes lines for the engine's log."""

    def __init__(self, lines: list[tuple[str, str, dict[str, Any]]]) -> None:
        self._lines = lines
        self.debug = self.info = partial(self._take, "info")
        self.warning = self.error = partial(self._take, "warning")

    def _take(self, level: str, said: object, **fields: Any) -> None:
        if len(self._lines) < LINES_LIMIT:
            told = {str(key): str(value)[:LINE_CHARS] for key, value in fields.items()}
            self._lines.append((level, str(said)[:LINE_CHARS], told))
