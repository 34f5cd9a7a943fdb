"""Mismatches between a recorded tick and its replay."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from difflib import unified_diff
from pathlib import Path
from typing import Any

from lemming.journal_tools.recorded_tick import RecordedTick
from lemming.kernel.base.errors import LemmingError
from lemming.kernel.base.jsontext import dump_compact, dump_pretty, parse
from lemming.kernel.files import fs
from lemming.kernel.files.effects import FileEffect
from lemming.kernel.files.field_types import Json
from lemming.kernel.providers import Message

NOT_REPEATABLE = ("Interrupted", "DiskError", "NoLongerAllowed", "TurnBroke")
"""Errors caused by the engine or the disk: the recorded answers do not lead to them again."""

_CONTEXT_LINES = 2


class ReplayMismatch(LemmingError):
    """A replay that differs from the recorded tick. `diff` is a unified diff from recorded to replayed."""

    code = "LMG-107"

    def __init__(
        self, message: str, *, tick: int, agent: str = "", subject: str = "", diff: str = "", hint: str = ""
    ) -> None:
        super().__init__(message, where=f"tick {tick}" + (f", {agent}" if agent else ""), hint=hint)
        self.tick, self.agent, self.what, self.diff = tick, agent, subject, diff

    def as_json(self) -> dict[str, Any]:
        """Return the error with its location and the diff."""
        location = {"tick": self.tick, "agent": self.agent, "what": self.what}
        return {**super().as_json(), **location, "diff": self.diff}


def missing_answer_error(recorded: RecordedTick, agent: str, description: str) -> ReplayMismatch:
    """Return the error for an answer missing from the recorded turn."""
    ended = recorded.ended.get(agent)
    status = f"the recorded turn ended as {ended.report.status}" if ended else "it had no turn in the record"
    reason = f": {ended.report.reason}" if ended and ended.report.reason else ""
    return ReplayMismatch(
        f"no recorded answer for {description}; {status}{reason}", tick=recorded.tick, agent=agent, subject="answer"
    )


def require_equal(
    recorded: Json, replayed: Json, *, tick: int, agent: str, subject: str, ignored: Iterable[str] = ()
) -> None:
    """Raise `ReplayMismatch` unless both agree in all common keys, except the keys in `ignored`."""
    keys = [key for key in replayed if key in recorded and key not in set(ignored)]
    recorded_values = {key: recorded[key] for key in keys}
    replayed_values = parse(dump_compact({key: replayed[key] for key in keys}), limit_bytes=1 << 30)
    if recorded_values == replayed_values:
        return
    changed = ", ".join(key for key in keys if recorded_values[key] != replayed_values[key])
    diff = make_diff(dump_pretty(recorded_values).decode(), dump_pretty(replayed_values).decode(), subject)
    raise ReplayMismatch(f"{subject} differs: {changed}", tick=tick, agent=agent, subject=subject, diff=diff)


def make_diff(recorded: str, replayed: str, name: str) -> str:
    """Return a unified diff of two texts, without a final line end."""
    lines = unified_diff(
        recorded.splitlines(), replayed.splitlines(), f"{name} (recorded)", f"{name} (now)",
        lineterm="", n=_CONTEXT_LINES,
    )  # fmt: skip
    return "\n".join(lines)


def prompt_to_text(messages: Iterable[dict[str, str]]) -> str:
    """Return a prompt as text, for a diff."""
    return "\n".join(f"--- {message['role']}\n{message['content']}" for message in messages)


def strip_strategy_suffix(messages: list[Message], prompt: list[Message]) -> list[Message]:
    """Return the messages of a first prompt without the text a strategy appended."""
    shared = messages[: len(prompt)]
    if not prompt or len(shared) < len(prompt) or not shared[-1]["content"].startswith(prompt[-1]["content"]):
        return messages
    return [*shared[:-1], {**shared[-1], "content": prompt[-1]["content"]}]


OUTSIDE = ".lemming/outside"
"""Folder of replayed ticks."""


def redirect_inside(base: Path, effect: FileEffect) -> FileEffect:
    """Return an effect confined to the organisation in `base`."""
    if not effect.root:
        return effect
    # A replay must not write into the granted folders outside the organisation.
    root = Path(f"{base}/{OUTSIDE}{effect.root}")
    fs.make_root(root)
    return replace(effect, root=str(root))
