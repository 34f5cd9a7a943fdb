"""Atomic creation of an organisation in a folder: built in a staging folder inside, then moved out.

`agents/` marks a folder as an organisation and is moved last: an interruption before the last move leaves no
organisation.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from lemming.kernel.base.errors import UsageError
from lemming.kernel.files import fs
from lemming.kernel.files.descriptors import walk
from lemming.kernel.org.organisation import OrgPath

STAGING_FOLDERS = {
    "fork": ".lemming-fork",
    "restore": ".lemming-restore",
    "init": ".lemming-init",
    "apply": ".lemming-apply",
    "import": ".lemming-import",
}
"""Staging folder of each command, below the target folder."""
MERGING_COMMANDS = ("init", "apply", "import")
"""Commands that put an organisation into a folder that may hold other files."""
_COMPLETE_SUFFIX = "-whole"  # suffix of a complete staging folder, whose files are being moved out


def require_outside(base: OrgPath, path: Path, *, subject: str) -> None:
    """Raise `UsageError` for a path inside the organisation. `subject`: the thing to write there."""
    root = Path(base).resolve()
    if path.resolve().is_relative_to(root):
        hint = f"name one outside it: {root.parent / path.name}"
        raise UsageError(f"{subject} must be outside the organisation", where=str(path), hint=hint)


def require_free(folder: Path) -> None:
    """Raise `UsageError` for a non-empty folder, including the leftovers of an interrupted command."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    for command, staging in STAGING_FOLDERS.items():
        if (folder / staging).is_dir() and not (folder / "agents").exists():
            raise UsageError(
                f"the folder holds an unfinished `lemming {command}`, not an organisation",
                where=str(folder),
                hint="remove the folder and run the command again; nothing else is lost",
            )
    hint = "name an empty or a new folder; this folder is unchanged"
    raise UsageError("expected an empty or a new folder", where=str(folder), hint=hint)


@contextlib.contextmanager
def stage_org(folder: Path, command: str) -> Iterator[Path]:
    """Yield a staging folder for an organisation; after the block the organisation is in `folder`.

    The folder must be empty, or, for commands in `MERGING_COMMANDS`, hold none of the new files. After an
    error in the block the folder is unchanged. Raises `UsageError`, `DiskError`.
    """
    is_new, staging_name = not folder.exists(), STAGING_FOLDERS[command]
    if command not in MERGING_COMMANDS:
        require_free(folder)
    elif (folder / staging_name).is_dir():  # an earlier attempt ended before it was complete
        fs.remove_tree(folder, staging_name)
    fs.make_root(folder)
    try:
        fs.make_folder(folder, staging_name)
        yield folder / staging_name
        for file in _iter_files(folder / staging_name):
            if (folder / file).exists() or (folder / file).is_symlink():
                raise UsageError(f"{file} was created at the same time; nothing was written", where=str(folder))
    except BaseException:
        if (folder / staging_name).exists():
            fs.remove_tree(folder, staging_name)
        if is_new and not any(folder.iterdir()):
            fs.remove_tree(folder.parent, folder.name)
        raise
    # Synced first: `agents/` must not mark a folder whose files a power cut may still take.
    fs.sync_file_system(folder)
    if command in MERGING_COMMANDS:
        # The name says that all files are there: an interruption from here on is finished, not undone.
        fs.move(folder, staging_name, staging_name + _COMPLETE_SUFFIX)
        staging_name += _COMPLETE_SUFFIX
    _move_from_staging(folder, staging_name)


def finish_staging(folder: Path) -> bool:
    """Finish moving an organisation out of its staging folder after an interruption.

    Returns True if there was something to finish. Repeating the same command calls it.
    """
    stagings = [STAGING_FOLDERS[command] + _COMPLETE_SUFFIX for command in MERGING_COMMANDS]
    leftovers = [staging for staging in stagings if (folder / staging).is_dir()]
    for staging in leftovers:
        _move_from_staging(folder, staging)
    return bool(leftovers)


def _move_from_staging(folder: Path, staging: str) -> None:
    for name in sorted(os.listdir(folder / staging), key=lambda name: name == "agents"):
        if not (folder / name).exists():
            fs.move(folder, f"{staging}/{name}", name)
            continue
        for file in _iter_files(folder / staging / name):  # a folder of that name holds other files
            fs.move(folder, f"{staging}/{name}/{file}", f"{name}/{file}")
    fs.remove_tree(folder, staging)
    fs.sync_file_system(folder)


def _iter_files(folder: Path) -> Iterator[str]:
    for _, _, files in walk(folder):
        for file in files:
            yield Path(file.path).relative_to(folder).as_posix()
