"""Values that describe a harness, a requested run of a harness, and the end of a run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from lemming.capabilities.workers.attempts import Attempt, WorkerJob
from lemming.capabilities.workers.harnesses.json_fields import RunTokens

ModelApi = Literal["anthropic", "openai-responses", "openai-chat", "gemini", "none"]
"""The API that a harness speaks to its model. "none": the engine does not pass on its requests."""

PermissionMode = Literal["bypass", "ask"]
"""Permissions of a harness. "bypass": it asks nothing, for work inside a private clone. "ask": `permit` decides."""

ErrorKind = Literal["", "auth", "rate_limit", "budget", "turns", "model", "stopped", "session", "unreadable", "exit"]
"""Kind of a run's error, empty for success. "session": the session to resume does not exist."""


@dataclass(frozen=True, kw_only=True)
class EventRule:
    """What an event of a harness tells, if it has each value of `when` and none of `unless`. Later rules outrank earlier ones.

    Names in `when` and `unless`, `objects`, `input`, `usage` and `cost` are paths, such as `item.type`; other texts name
    values by {PATH}. Of several the first counts that gives something.

    `objects`: the rule is for each of these, which is `object` in paths. `session`: the session's id. `say`: text for
    screens. `reply`: text that replaces the reply so far, or is added to it by `adds`; an empty text removes it. `tool`:
    name of a call with the arguments `input`, or of a change of `file`. `usage`, `cost`: tokens and dollars, which are
    added, or those of the whole run if the rule has an `end`. `end`: the run has ended with this error, or without one.
    `message`, `status`: words and HTTP status of the error.
    """

    when: Mapping[str, Any] = field(default_factory=dict)
    unless: Mapping[str, Any] = field(default_factory=dict)
    objects: str = ""
    session: str = ""
    say: tuple[str, ...] = ()
    reply: str | None = None
    adds: bool = False
    tool: tuple[str, ...] = ()
    input: str = ""
    file: str = ""
    usage: tuple[str, ...] = ()
    cost: str = ""
    end: ErrorKind | None = None
    message: tuple[str, ...] = ()
    status: str = ""


@dataclass(frozen=True, kw_only=True)
class Harness:
    """A harness, as described by `harnesses/NAME.json`. `name` is the file's.

    Texts in `arguments`, `resume`, `environment` and `home_files` may name {model}, {session}, {base_url}, {key_variable},
    {max_cost_usd} and {max_turns}. The prompt goes to standard input.

    `program`: the command's first words. `arguments`: the words after them; the word "{resume}" stands for the words of
    `resume` if a session is resumed, "{permissions}" for those of the permission mode, "{limits}" for those of each
    limit that is set, and for nothing otherwise. `environment`: variables beside HOME, PATH and the key. `key_variable`:
    variable from which the harness takes the key. `home_files`: files of HOME by path; a text, a list of lines, or an
    object that is written as JSON. `version`: words that print the version. `stop_signal`: sent first to end a run early.
    `install`: command that installs the harness.

    `output`: "events" are lines of JSON that the rules `events` read; "claude" also asks for permissions, "acp" is a
    protocol. `skipped_prefix`: beginning of lines that need not be parsed. `tokens`: paths of input, output, cached and
    written tokens in a usage; several are added. `counts_session`: a usage is that of all runs of the session.
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
    output: Literal["text", "events", "claude", "acp"] = "text"
    skipped_prefix: str = ""
    tokens: tuple[str, ...] = ()
    counts_session: bool = False
    events: tuple[EventRule, ...] = ()
    version: tuple[str, ...] = ()
    stop_signal: Literal["INT", "TERM"] = "TERM"
    install: str = ""


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


MIN_SECRET_CHARS = 8
"""Minimum length of a secret: a shorter text is part of ordinary words."""

EndedBy = Literal["", "deadline", "silence", "stop", "person", "budget"]
"""Cause of an early end; empty if the harness ended by itself. "stop": the engine ends. "person": `lemming workers stop`."""


@dataclass(frozen=True, kw_only=True)
class HarnessEnd:
    """The end of a run, as the output of the harness tells it, and as the engine saw it.

    `tokens`, `cost_usd`: by the count of the harness, or None. `message`: the error in the harness's own words.
    `questions`: permission questions answered "later". `gateway_tokens`, `gateway_usd`: None if nothing passed the
    gateway, `requests` the number of what did.
    """

    text: str = ""
    session: str = ""
    tokens: RunTokens | None = None
    cost_usd: float | None = None
    error: ErrorKind = ""
    message: str = ""
    questions: Sequence[PermissionQuestion] = ()
    exit_status: int = 0
    ended_by: EndedBy = ""
    gateway_tokens: RunTokens | None = None
    gateway_usd: float | None = None
    requests: int = 0


@dataclass(frozen=True, kw_only=True)
class HarnessRun:
    """One run of a harness for a job, in the clone of an attempt.

    `prompt`: text for standard input. `session`: the session to resume, or an empty text. `readable`: folders to read
    besides, such as the objects of the user's repository. `base_url` and `key`: the model's server behind the gateway.
    `max_turns`: None for no limit. `spent_usd`: spent by earlier runs of the attempt, which counts against the job's
    `max_cost_usd`. `deadline_s`, `silence_s`: seconds for the run, and without any output or request. `budget_grace_s`:
    seconds for a harness to end by itself after a request beyond `max_cost_usd`. `permit`: decides permission questions.
    """

    harness: Harness
    job: WorkerJob
    attempt: Attempt
    prompt: str
    session: str = ""
    readable: Sequence[Path] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    base_url: str = ""
    key: str = ""
    max_turns: int | None = None
    spent_usd: float = 0.0
    deadline_s: float = 1800.0
    silence_s: float = 600.0
    budget_grace_s: float = 5.0
    permit: Permit | None = None
    on_progress: Callable[[Progress], object] | None = None
    stop: threading.Event | None = None

    @property
    def secret_key(self) -> str:
        """The key, to keep out of texts; empty for a short one, such as the "none" of a local server."""
        return self.key if len(self.key) >= MIN_SECRET_CHARS else ""

    def find_cost(self, tokens: RunTokens) -> float | None:
        """Return the dollars of tokens, or None without known prices."""
        return tokens.compute_cost(self.job.prices)
