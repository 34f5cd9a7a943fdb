"""The `Problem`: found by checks, shown by commands, the page and alerts."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

FORMS = {
    "problem": "message file line column pointer hint severity code",
    "mismatch": "tick file kind message is_error",
    "issue": "about text=message fix=hint since_tick=tick since",
    "finding": "kind agents text=message since_tick=tick evidence fix=hint",
}
"""The keys of each JSON form, with the attribute for a key of another name."""


@dataclass(frozen=True)
class Problem:
    """A problem with its place and a hint, for people and for programs.

    `line` and `column` count from 1; 0 means unknown. `pointer` is a JSON pointer. A `severity` "note" is information.
    `code`: the code in docs/TROUBLESHOOTING.md. Other fields are optional. `kind`: the kind of a finding,
    or of a difference between journals and files. `about`: an agent or another subject that needs a person. `agents`: the
    agents in a finding. `tick`: the tick concerned, or the first one. `since`: a timestamp. `evidence`: turns as
    TICK/AGENT, and files, in time order.
    """

    message: str
    file: str = ""
    line: int = 0
    column: int = 0
    pointer: str = ""
    hint: str = ""
    severity: str = "error"
    code: str = "LMG-302"
    kind: str = ""
    about: str = ""
    agents: tuple[str, ...] = ()
    tick: int | None = None
    since: str = ""
    evidence: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        """The location as `file:line:column /pointer`, without the unknown parts."""
        location = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return f"{location} {self.pointer}".strip()

    @property
    def is_error(self) -> bool:
        """True for an error, False for a warning or a note."""
        return self.severity == "error"

    def as_json(self, form: str = "problem") -> dict[str, Any]:
        """Return the problem as JSON values, in one of the `FORMS`: the object printed by `--json`."""
        pairs = [key.split("=") for key in FORMS[form].split()]
        values = {key: getattr(self, attribute[0] if attribute else key) for key, *attribute in pairs}
        values = {key: [*value] if isinstance(value, tuple) else value for key, value in values.items()}
        return {"v": 1, "type": "problem", **values} if form == "problem" else values

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}" if self.where else self.message
        return f"{text} ({self.hint})" if self.hint else text


def make_warning(message: str, pointer: str = "", hint: str = "", file: str = "", code: str = "LMG-302") -> Problem:
    """Return a problem of severity "warning", without effect on a run."""
    return Problem(message, file, pointer=pointer, hint=hint, severity="warning", code=code)


def make_note(text: str, hint: str = "") -> Problem:
    """Return a problem of severity "note": information without a required action."""
    return Problem(text, hint=hint, severity="note")


MAX_VALUES = 1000


class RecentValues:
    """The most recently reported values, to report each once. Old ones are dropped: problems often contain a tick."""

    def __init__(self) -> None:
        self._values: dict[Hashable, None] = {}

    def add(self, value: Hashable) -> bool:
        """Add a value; return True if the value is new."""
        is_new = value not in self._values
        self._values[value] = None
        if len(self._values) > MAX_VALUES:
            del self._values[next(iter(self._values))]
        return is_new
