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

STAGINGS = {"fork": ".lemming-fork", "restore": ".lemming-restore"}
"""Where each command makes an organisation, below the folder that it is for."""


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
    """Yield a folder to make an organisation in; after the block it stands in `folder`, which must be free.

    After an error in the block `folder` is as it was. Raises `UsageError`, `DiskError`.
    """
    require_free(folder)
    is_new, staging = not folder.exists(), STAGINGS[command]
    fs.make_root(folder)
    try:
        fs.make_folder(folder, staging)
        yield folder / staging
    except BaseException:
        if (folder / staging).exists():
            fs.remove_tree(folder, staging)
        if is_new and not any(folder.iterdir()):
            fs.remove_tree(folder.parent, folder.name)
        raise
    # All of it is on the disk before `agents/` says that this is an organisation.
    fs.sync_file_system(folder)
    for name in sorted(os.listdir(folder / staging), key=lambda name: name == "agents"):
        fs.move(folder, f"{staging}/{name}", name)
    fs.remove_tree(folder, staging)
    fs.sync_file_system(folder)
