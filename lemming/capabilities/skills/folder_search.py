"""Looking through folders for skills, within limits: what lies there may be anybody's. Links are left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from lemming.kernel.access.allowed_paths import Place, kept_at
from lemming.kernel.access.open import LISTING_LIMIT, is_there_to_read, list_folder
from lemming.kernel.base.errors import Problem, ToolError
from lemming.kernel.base.paths import SKILL_FILE

DEEPEST = 4
FOLDERS_LOOKED_AT = 2000
FILES_LISTED = 200

_NEVER_ENTERED = ("node_modules/",)


class SkillSearch:
    """One look; `problems` says what was not looked at. `names` is the pattern of the skills wanted."""

    def __init__(self, base: Path, staged: Mapping[str, bytes], names: str = "*") -> None:
        self._base, self._staged, self._names_wanted = base, staged, names
        self._left = FOLDERS_LOOKED_AT
        self.problems: list[Problem] = []

    def skills_below(self, folder: str) -> Iterator[str]:
        """Yield the folders below one that hold a skill of a wanted name, at most `DEEPEST` folders deep."""
        if is_there_to_read(self._place(folder), self._staged):
            yield from self._below(folder, self._listed(folder), DEEPEST)

    def files_in(self, folder: str) -> list[str]:
        """Return the paths of the files below a folder, from there, sorted; at most `FILES_LISTED`."""
        found: list[str] = []
        waiting = [folder]
        while waiting and len(found) < FILES_LISTED:
            here = waiting.pop(0)
            names = self._listed(here)
            waiting += [f"{here}/{name[:-1]}" for name in names if name.endswith("/")]
            found += [f"{here}/{name}"[len(folder) + 1 :] for name in names if name[-1] not in "/@"]
        return sorted(found)[:FILES_LISTED]

    def _below(self, folder: str, names: list[str], deeper: int) -> Iterator[str]:
        for name in names:
            path, is_wanted = f"{folder}/{name[:-1]}", fnmatchcase(name[:-1], self._names_wanted)
            if name.endswith("@") and is_wanted:
                self._report(
                    path, "a symbolic link, which is not followed", "list the folder it leads to, or copy it"
                )
            if not name.endswith("/") or name.startswith(".") or name in _NEVER_ENTERED:
                continue
            inside = self._listed(path)
            if SKILL_FILE not in inside and deeper > 1:
                yield from self._below(path, inside, deeper - 1)
            if SKILL_FILE in inside and is_wanted:
                yield path
            elif is_wanted:
                self._report_similar_name(path, inside)

    def _report_similar_name(self, folder: str, names: list[str]) -> None:
        if f"{SKILL_FILE}@" in names:
            self._report(f"{folder}/{SKILL_FILE}", "a symbolic link, which is not followed", "copy the file")
        if like := next((name for name in names if name.casefold() == SKILL_FILE.casefold()), None):
            self._report(f"{folder}/{like}", f"a skill's file is called {SKILL_FILE}", "rename it")

    def _listed(self, folder: str) -> list[str]:
        """Return the names in a folder, of folders with / and of links with @; none when it cannot be."""
        self._left -= 1
        if self._left <= 0:
            if not self._left:
                what = f"more than {FOLDERS_LOOKED_AT} folders; the rest is not looked at"
                self._report(folder, what, "name a folder with fewer")
            return []
        try:
            names, left_out = list_folder(self._place(folder), self._staged)
        except ToolError as error:
            self._report(folder, error.message, "it must be a folder of the organisation")
            return []
        if left_out:
            self._report(folder, f"more than {LISTING_LIMIT} names; the rest is not looked at", "divide it")
        return names

    def _place(self, folder: str) -> Place:
        return kept_at(self._base, folder, caller="skills")

    def _report(self, file: str, message: str, hint: str) -> None:
        self.problems.append(warning(file, message, hint))


def warning(file: str, message: str, hint: str) -> Problem:
    """Return something to be told about a file that is left out."""
    return Problem(message, file, hint=hint, severity="warning")
