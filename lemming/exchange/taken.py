"""What an importer has made of a source: resumes, other files, models, and remarks for the person."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Remark(NamedTuple):
    """Something a person should know: about which file of the source, and what."""

    file: str
    message: str


@dataclass(frozen=True)
class Destination:
    """What the importers must know of the organisation: its tools, its people, its guide if it has one.

    `is_in_place`: the source is the organisation's own folder, so that what can be read where it lies is.
    """

    tools: Collection[str]
    people: tuple[str, ...]
    is_in_place: bool = False


@dataclass
class Taken:
    """What was made of a source. `files` are written as they are, by path in the organisation.

    `optional` are files that are left out where others stand already: guides and skills of everybody.
    """

    resumes: dict[str, dict[str, Any]] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    optional: dict[str, bytes] = field(default_factory=dict)
    models: dict[str, dict[str, Any]] = field(default_factory=dict)
    remarks: list[Remark] = field(default_factory=list)

    def remark(self, file: str, message: str) -> None:
        """Take note of something for the person."""
        self.remarks.append(Remark(file, message))
