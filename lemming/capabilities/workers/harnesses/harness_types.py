"""Values that describe a harness and a run of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from operator import add, sub
from typing import Any, Literal

ModelApi = Literal["anthropic", "openai-responses", "openai-chat", "gemini", "none"]
"""The API that a harness speaks to its model. "none": the engine does not pass on its requests."""

PermissionMode = Literal["bypass", "ask"]
"""Permissions of a harness. "bypass": it asks nothing, for work inside a private clone. "ask": `permit` decides."""

ErrorKind = Literal["", "auth", "rate_limit", "budget", "turns", "model", "stopped", "session", "unreadable", "exit"]
"""Kind of a run's error, empty for success. "session": the session to resume does not exist."""


@dataclass(frozen=True, kw_only=True)
class Harness:
    """A harness, as described by `harnesses/NAME.json`. `name` is the file's.

    Texts in `arguments`, `resume`, `environment` and `home_files` may name {model}, {session}, {base_url}, {key_variable},
    {max_cost_usd} and {max_turns}. The prompt goes to standard input.

    `program`: the command's first words. `arguments`: the words after them; the word "{resume}" stands for the words of
    `resume` if a session is resumed, "{permissions}" for those of the permission mode, "{limits}" for those of each
    limit that is set, and for nothing otherwise. `environment`: variables beside HOME, PATH and the key. `key_variable`:
    variable from which the harness takes the key. `home_files`: files of HOME by path; a text, a list of lines, or an
    object that is written as JSON. `output`: name of the reader; "acp" is a protocol (`acp_client`). `version`: words
    that print the version. `stop_signal`: sent first to end a run early. `install`: command that installs the harness.
    """

    name: str = ""
    program: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    resume: tuple[str, ...] = ()
    limits: Mapping[Literal["max_cost_usd", "max_turns"], tuple[str, ...]] = field(default_factory=dict)
    permissions: Mapping[PermissionMode, tuple[str, ...]] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    key_variable: str = "LEMMING_MODEL_KEY"
    home_files: Mapping[str, Any] = field(default_factory=dict)
    api: ModelApi = "none"
    output: str = "text"
    version: tuple[str, ...] = ()
    stop_signal: Literal["INT", "TERM"] = "TERM"
    install: str = ""


@dataclass(frozen=True)
class RunTokens:
    """Tokens of one run. `input` includes `cached` and `written`."""

    input: int = 0
    output: int = 0
    cached: int = 0
    written: int = 0

    def __add__(self, other: RunTokens) -> RunTokens:
        return RunTokens(*map(add, astuple(self), astuple(other)))

    def __sub__(self, other: RunTokens) -> RunTokens:
        return RunTokens(*(max(0, count) for count in map(sub, astuple(self), astuple(other))))


@dataclass(frozen=True, kw_only=True)
class Progress:
    """A step of a running worker, for screens: a tool call, a changed file, or a text."""

    kind: Literal["session", "text", "tool", "file"]
    text: str
    path: str = ""


@dataclass(frozen=True, kw_only=True)
class PermissionQuestion:
    """A question of a running harness: may it use this tool with this input?"""

    tool: str
    input: Mapping[str, Any]


Decision = Literal["allow", "deny", "later"]
"""Answer to a question. "later": a person decides, and the session is resumed afterwards."""

Permit = Callable[[PermissionQuestion], Decision]


@dataclass(frozen=True, kw_only=True)
class HarnessResult:
    """The end of a run, as the harness's output tells it.

    `tokens`: usage of this run as the harness counts it, or None. `cost_usd`: cost as the harness counts it, or None.
    `message`: the error in the harness's own words. `questions`: permission questions answered "later".
    """

    text: str = ""
    session: str = ""
    tokens: RunTokens | None = None
    cost_usd: float | None = None
    error: ErrorKind = ""
    message: str = ""
    questions: Sequence[PermissionQuestion] = ()
