"""What it is when a second run of a recorded tick comes out otherwise."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from difflib import unified_diff
from pathlib import Path
from typing import Any

from lemming.kernel.base.errors import LemmingError
from lemming.kernel.base.jsontext import compact, parse, pretty
from lemming.kernel.files import fs
from lemming.kernel.files.effects import FileEffect
from lemming.kernel.files.fields import Json
from lemming.kernel.providers import Message
from lemming.timeline.record import RecordedTick

NOT_REPEATABLE = ("Interrupted", "DiskError", "NoLongerAllowed", "TurnBroke")
"""Errors of turns that failed for the engine's or the disk's sake: no answers lead there a second time."""

_CONTEXT_LINES = 2


class Difference(LemmingError):
    """A recorded tick came out otherwise when it was run again. `diff` is a unified diff: recorded, now."""

    code = "LMG-107"

    def __init__(
        self, message: str, *, tick: int, agent: str = "", what: str = "", diff: str = "", hint: str = ""
    ) -> None:
        super().__init__(message, where=f"tick {tick}" + (f", {agent}" if agent else ""), hint=hint)
        self.tick, self.agent, self.what, self.diff = tick, agent, what, diff

    def as_json(self) -> dict[str, Any]:
        """Return the error with the place and the diff."""
        place = {"tick": self.tick, "agent": self.agent, "what": self.what}
        return {**super().as_json(), **place, "diff": self.diff}


def missing(recorded: RecordedTick, agent: str, what: str) -> Difference:
    """Return the error for an answer that the recorded turn does not have."""
    ended = recorded.ended.get(agent)
    status = f"the recorded turn ended as {ended.report.status}" if ended else "it had no turn in the record"
    reason = f": {ended.report.reason}" if ended and ended.report.reason else ""
    return Difference(
        f"no recorded answer for {what}; {status}{reason}", tick=recorded.tick, agent=agent, what="answer"
    )


def require_same(
    recorded: Json, now: Json, *, tick: int, agent: str, what: str, but: Iterable[str] = ()
) -> None:
    """Raise `Difference` unless both agree in every key that both have, those in `but` left out."""
    keys = [key for key in now if key in recorded and key not in set(but)]
    before = {key: recorded[key] for key in keys}
    after = parse(compact({key: now[key] for key in keys}), limit_bytes=1 << 30)
    if before == after:
        return
    changed = ", ".join(key for key in keys if before[key] != after[key])
    diff = diff_of(pretty(before).decode(), pretty(after).decode(), what)
    raise Difference(f"{what} came out otherwise: {changed}", tick=tick, agent=agent, what=what, diff=diff)


def diff_of(recorded: str, now: str, name: str) -> str:
    """Return a unified diff of two texts, without a line end at its end."""
    lines = unified_diff(
        recorded.splitlines(), now.splitlines(), f"{name} (recorded)", f"{name} (now)",
        lineterm="", n=_CONTEXT_LINES,
    )  # fmt: skip
    return "\n".join(lines)


def as_text(messages: Iterable[dict[str, str]]) -> str:
    """Return a prompt as text, for a diff."""
    return "\n".join(f"--- {message['role']}\n{message['content']}" for message in messages)


def without_question(asked: list[Message], prompt: list[Message]) -> list[Message]:
    """Return the messages of a first question without what a strategy has put after the prompt's end."""
    shared = asked[: len(prompt)]
    if not prompt or len(shared) < len(prompt) or not shared[-1]["content"].startswith(prompt[-1]["content"]):
        return asked
    return [*shared[:-1], {**shared[-1], "content": prompt[-1]["content"]}]


OUTSIDE = ".lemming/outside"
"""Where ticks that are run again put them."""


def moved_inside(base: Path, effect: FileEffect) -> FileEffect:
    """Return an effect that changes nothing outside the organisation in `base`."""
    if not effect.root:
        return effect
    root = Path(f"{base}/{OUTSIDE}{effect.root}")
    fs.make_root(root)
    return replace(effect, root=str(root))
