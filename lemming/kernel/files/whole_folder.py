"""An organisation that is put into a folder whole or not at all: made in a folder inside, then moved out.

`agents/` is what makes a folder an organisation, and comes last: whatever ends it before leaves none.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from lemming.kernel.base.errors import UsageError
from lemming.kernel.files import fs
from lemming.kernel.files.descriptors import walk

STAGINGS = {
    "fork": ".lemming-fork",
    "restore": ".lemming-restore",
    "init": ".lemming-init",
    "apply": ".lemming-apply",
    "import": ".lemming-import",
}
"""Where each command makes an organisation, below the folder that it is for."""
AMONG_OTHERS = ("init", "apply", "import")
"""Commands that put an organisation into a folder that may hold other files."""
_WHOLE = "-whole"  # behind the name of a staging folder whose files are all there, and are being moved out


def require_free(folder: Path) -> None:
    """Raise `UsageError` for a folder that holds anything, what was left half-way by this included."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    for command, staging in STAGINGS.items():
        if (folder / staging).is_dir() and not (folder / "agents").exists():
            raise UsageError(
                f"this is what `lemming {command}` left when it was ended half-way: no organisation",
                where=str(folder),
                hint="remove the folder, and give the command again; nothing else is lost with it",
            )
    hint = "name one that is empty or not there; what is in this one stays as it is"
    raise UsageError("this is not an empty folder", where=str(folder), hint=hint)


@contextlib.contextmanager
def put_whole(folder: Path, command: str) -> Iterator[Path]:
    """Yield a folder to make an organisation in; after the block it stands in `folder`.

    The folder must be free, or, for commands `AMONG_OTHERS`, hold none of these files. After an error in the
    block it is as it was. Raises `UsageError`, `DiskError`.
    """
    is_new, staging = not folder.exists(), STAGINGS[command]
    if command not in AMONG_OTHERS:
        require_free(folder)
    elif (folder / staging).is_dir():  # ended before all of it was there
        fs.remove_tree(folder, staging)
    fs.make_root(folder)
    try:
        fs.make_folder(folder, staging)
        yield folder / staging
        for file in _files_in(folder / staging):
            if (folder / file).exists() or (folder / file).is_symlink():
                raise UsageError(f"{file} came meanwhile; nothing was written", where=str(folder))
    except BaseException:
        if (folder / staging).exists():
            fs.remove_tree(folder, staging)
        if is_new and not any(folder.iterdir()):
            fs.remove_tree(folder.parent, folder.name)
        raise
    # All of it is on the disk before `agents/` says that this is an organisation.
    fs.sync_file_system(folder)
    if command in AMONG_OTHERS:
        fs.move(folder, staging, staging + _WHOLE)
        staging += _WHOLE
    _move_from_staging(folder, staging)


def finish_put(folder: Path) -> bool:
    """Finish putting an organisation into a folder where that was ended while it was moved out.

    Returns True if there was something to finish. It is done by giving the same command again.
    """
    stagings = [STAGINGS[command] + _WHOLE for command in AMONG_OTHERS]
    left = [staging for staging in stagings if (folder / staging).is_dir()]
    for staging in left:
        _move_from_staging(folder, staging)
    return bool(left)


def _move_from_staging(folder: Path, staging: str) -> None:
    for name in sorted(os.listdir(folder / staging), key=lambda name: name == "agents"):
        if not (folder / name).exists():
            fs.move(folder, f"{staging}/{name}", name)
            continue
        for file in _files_in(folder / staging / name):  # a folder of that name holds other files
            fs.move(folder, f"{staging}/{name}/{file}", f"{name}/{file}")
    fs.remove_tree(folder, staging)
    fs.sync_file_system(folder)


def _files_in(folder: Path) -> Iterator[str]:
    for _, _, files in walk(folder):
        for file in files:
            yield Path(file.path).relative_to(folder).as_posix()
