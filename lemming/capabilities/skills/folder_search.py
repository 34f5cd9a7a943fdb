"""Search folders for skills within limits, since folders may contain anyone's files.

Links are not followed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from lemming.ext import Problem, make_warning
from lemming.kernel.access.allowed_paths import AllowedPath, resolve_org_path
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ToolError
from lemming.libraries.agent_folders import LISTING_LIMIT, is_readable, list_folder

MAX_DEPTH = 4
MAX_FOLDERS = 2000
MAX_FILES = 200

_EXCLUDED_FOLDERS = ("node_modules/",)


class SkillSearch:
    """One search. `problems` lists the skipped paths. `names` is a pattern for the names of skills."""

    def __init__(self, base: Path, staged: Mapping[str, bytes], names: str = "*") -> None:
        self._base, self._staged, self._name_pattern = base, staged, names
        self._remaining_folders = MAX_FOLDERS
        self.problems: list[Problem] = []

    def iter_skill_folders(self, folder: str) -> Iterator[str]:
        """Yield the skill folders below a folder with a matching name, at most `MAX_DEPTH` levels deep."""
        if is_readable(self._resolve_folder(folder), self._staged):
            yield from self._search_subfolders(folder, self._list_names(folder), MAX_DEPTH)

    def list_files(self, folder: str) -> list[str]:
        """Return the relative paths of the files below a folder, sorted, at most `MAX_FILES`."""
        files: list[str] = []
        pending = [folder]
        while pending and len(files) < MAX_FILES:
            current = pending.pop(0)
            names = self._list_names(current)
            pending += [f"{current}/{name[:-1]}" for name in names if name.endswith("/")]
            files += [f"{current}/{name}"[len(folder) + 1 :] for name in names if name[-1] not in "/@"]
        return sorted(files)[:MAX_FILES]

    def _search_subfolders(self, folder: str, names: list[str], depth: int) -> Iterator[str]:
        for name in names:
            path, is_match = f"{folder}/{name[:-1]}", fnmatchcase(name[:-1], self._name_pattern)
            if name.endswith("@") and is_match:
                self._add_problem(path, "symbolic links are not followed", "list the folder it leads to, or copy it")
            if not name.endswith("/") or name.startswith(".") or name in _EXCLUDED_FOLDERS:
                continue
            inside = self._list_names(path)
            if paths.SKILL_FILE not in inside and depth > 1:
                yield from self._search_subfolders(path, inside, depth - 1)
            if paths.SKILL_FILE in inside and is_match:
                yield path
            elif is_match:
                self._report_similar_name(path, inside)

    def _report_similar_name(self, folder: str, names: list[str]) -> None:
        if f"{paths.SKILL_FILE}@" in names:
            self._add_problem(f"{folder}/{paths.SKILL_FILE}", "symbolic links are not followed", "copy the file")
        if like := next((name for name in names if name.casefold() == paths.SKILL_FILE.casefold()), None):
            self._add_problem(f"{folder}/{like}", f"the file of a skill must be named {paths.SKILL_FILE}", "rename it")

    def _list_names(self, folder: str) -> list[str]:
        """Return the names in a folder, folders ending with / and links with @. Empty for an unreadable folder."""
        self._remaining_folders -= 1
        if self._remaining_folders <= 0:
            if not self._remaining_folders:
                message = f"the folder has more than {MAX_FOLDERS} folders; the rest is ignored"
                self._add_problem(folder, message, "name a smaller folder")
            return []
        try:
            names, omitted = list_folder(self._resolve_folder(folder), self._staged)
        except ToolError as error:
            self._add_problem(folder, error.message, "name a folder of the organisation")
            return []
        if omitted:
            self._add_problem(
                folder, f"the folder has more than {LISTING_LIMIT} names; the rest is ignored", "split it"
            )
        return names

    def _resolve_folder(self, folder: str) -> AllowedPath:
        return resolve_org_path(self._base, folder, caller="skills")

    def _add_problem(self, file: str, message: str, hint: str) -> None:
        self.problems.append(make_warning(message, hint=hint, file=file))
