"""The context of a tool call, and its requests besides the result: memories, entries, log lines.

Nothing is written here: requests go to the engine with the result, are recorded with the result, and are
written with the turn. They therefore survive a crash and hold in a replay.
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
from lemming.kernel.base.aliases import accept_old_names
from lemming.kernel.base.blocking_deadline import NEVER, Deadline
from lemming.kernel.base.contract import NewEntry
from lemming.kernel.base.entry_kinds import MessageKind
from lemming.kernel.base.errors import ToolError
from lemming.kernel.base.jsontext import did_you_mean, dump_compact, parse
from lemming.kernel.base.turn_numbers import NUMBERS_PER_TURN
from lemming.kernel.files import fs
from lemming.kernel.memory import decode_memory, list_memories, load_memory, make_memory_effect
from lemming.kernel.org.config import OrgSettings
from lemming.kernel.org.organisation import Organisation

LINES_LIMIT, LINE_CHARS = 200, 2000
"""Maximum lines of a call in the log, and their maximum length."""


@dataclass
class RequestedEffects:
    """Requests of a call besides its result: memories by key, entries, log lines, state."""

    memories: dict[str, Any] = field(default_factory=dict)
    entries: list[NewEntry] = field(default_factory=list)
    lines: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    state: dict[str, Any] | None = None


@accept_old_names
@dataclass(frozen=True, kw_only=True)
class ToolContext:
    """Caller, organisation and time of a tool call, with the files staged by the turn.

    `staged` holds the files this turn will write, by `FileEffect.path_key`; `removed` names the files this turn
    will remove.

    `used_up`: credits spent from the agent's allowance so far (None: read from the ledger). `successes`:
    number of successful calls of each tool in this turn. `deadline`: time by which the call must be over;
    `stop` is set when the engine is to end. `began_at`: the tick's clock reading. `index` counts the calls of
    the turn from 0. `answered`: answered sub-requests of the turn's request, each as the identities of both
    entries. `check_result` runs the gates on a whole result before truncation.
    """

    agent: Agent
    org: Organisation
    settings: OrgSettings
    now: str
    staged: Mapping[str, bytes] = field(default_factory=dict)
    removed: frozenset[str] = frozenset()
    used_up: float | None = None
    successes: Mapping[str, int] = field(default_factory=dict)
    tick: int = 0
    began_at: str = ""
    index: int = 0
    tool: str = ""
    deadline: Deadline = NEVER
    stop: threading.Event | None = None
    requested: RequestedEffects = field(default_factory=RequestedEffects)
    answered: tuple[tuple[str, str], ...] = ()
    check_result: Callable[[Any], Any] | None = None

    @property
    def base(self) -> Path:
        """The organisation's folder."""
        return self.org.base

    @property
    def limit_s(self) -> float:
        """Seconds left for the call."""
        return self.deadline.remaining()

    @property
    def turn(self) -> int:
        """Number of the calling turn among the agent's turns in the tick."""
        return self.index // NUMBERS_PER_TURN

    @property
    def call_id(self) -> str:
        """Identifier of the call in the organisation: `TICK/AGENT/INDEX`, as in `lemming repair`."""
        return f"{self.tick}/{self.agent.name}/{self.index}"

    @property
    def idempotency_key(self) -> str:
        """A key of 32 letters, unique to this call and the same after a crash. For services that execute a key once."""
        return sha256(f"{self.call_id} {self.tool} {self.began_at}".encode()).hexdigest()[:32]

    @property
    def workspace(self) -> Path:
        """The agent's workspace folder, created if missing."""
        folder = paths.workspace_folder(self.agent.name)
        fs.make_folder(self.base, folder)
        return self.base / folder

    def resolve_path(self, path: str) -> Path:
        """Return the real path of a path used by the agent, with all links resolved, as file tools do.

        With `@tool(places=[...])`, gates check the same path. The agent's permissions are not checked here.
        """
        from lemming.kernel.files.canonical_path import canonical_path

        return self.base / canonical_path(self.base, paths.resolve_agent_path(self.agent.name, path))

    @property
    def memory(self) -> Memory:
        """The agent's memories by key. New values are saved if the turn succeeds."""
        return Memory(self)

    @property
    def state(self) -> dict[str, Any]:
        """This tool's state for this agent: a dict of JSON values, stored as the memory `state.<tool>`."""
        if self.requested.state is None:
            saved = self.memory.get(self.state_key, {})
            self.requested.state = parse(dump_compact(saved)) if isinstance(saved, dict) else {}
        return self.requested.state

    @property
    def state_key(self) -> str:
        """Key of the memory with the state."""
        return f"state.{self.tool}"

    def emit(self, kind: MessageKind, payload: dict[str, Any], tags: list[str] | tuple[str, ...] = ()) -> None:
        """Request an entry in the caller's own outbox. Raises `ToolError` for an invalid entry."""
        if kind not in get_args(MessageKind):
            kinds = get_args(MessageKind)
            hint = did_you_mean(str(kind), kinds)
            raise ToolError(f"emit: {kind!r} is no kind of entry: {', '.join(kinds)}", hint=hint)
        try:
            fields = parse(dump_compact({"payload": payload, "tags": list(tags)}))
        except (TypeError, ValueError, RecursionError) as error:
            raise ToolError(f"emit: the payload is not JSON: {error}") from error
        if not isinstance(fields["payload"], dict) or not all(isinstance(tag, str) for tag in fields["tags"]):
            raise ToolError("emit: the payload must be a dict, and tags a list of texts")
        self.requested.entries.append(NewEntry(kind, fields["payload"], fields["tags"]))

    @property
    def log(self) -> Log:
        """Logger for the engine's log, as in `ctx.log.info("asked the server", city=city)`."""
        return Log(self.requested.lines)

    def requested_effects(self) -> RequestedEffects:
        """Return the requests of the call, with a changed state among the memories."""
        requested = self.requested
        if requested.state is not None and requested.state != self.memory.get(self.state_key, {}):
            self.memory[self.state_key] = requested.state
        return requested


class Memory(Mapping[str, Any]):
    """An agent's memories as visible in its turn; setting a key saves the value."""

    def __init__(self, context: ToolContext) -> None:
        self._context = context

    def __getitem__(self, key: str) -> Any:
        context = self._context
        if key in context.requested.memories:
            return context.requested.memories[key]
        try:
            path_key = paths.memory_file(context.agent.name, key)
        except (ValueError, TypeError) as error:
            raise KeyError(key) from error
        if path_key in context.staged:
            return decode_memory(context.staged[path_key], path_key)
        if key not in list_memories(context.base, context.agent.name) or path_key in context.removed:
            raise KeyError(key)
        return load_memory(context.base, context.agent.name, key)

    def __setitem__(self, key: str, value: Any) -> None:
        context = self._context
        content = make_memory_effect(context.agent.name, key, value, context.now).content
        with suppress(KeyError):
            _ = self[key]  # a damaged file is not written over
        context.requested.memories[key] = decode_memory(content, key)

    def __iter__(self) -> Iterator[str]:
        context, folder = self._context, f"{paths.memory_folder(self._context.agent.name)}/"
        files = (file for file in context.staged if file.startswith(folder))
        staged = {file.removeprefix(folder).removesuffix(".json") for file in files}
        saved_keys = set(list_memories(context.base, context.agent.name))
        return iter(sorted({*saved_keys, *staged, *context.requested.memories}))

    def __len__(self) -> int:
        return len(list(iter(self)))


class Log:
    """Collects lines for the engine's log."""

    def __init__(self, lines: list[tuple[str, str, dict[str, Any]]]) -> None:
        self._lines = lines
        self.debug = self.info = partial(self._add, "info")
        self.warning = self.error = partial(self._add, "warning")

    def _add(self, level: str, message: object, **fields: Any) -> None:
        if len(self._lines) < LINES_LIMIT:
            field_texts = {str(key): str(value)[:LINE_CHARS] for key, value in fields.items()}
            self._lines.append((level, str(message)[:LINE_CHARS], field_texts))
