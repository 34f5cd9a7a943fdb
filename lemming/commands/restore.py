"""`lemming restore`: an organisation from a backup."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from lemming.commands.options import AsJson, argument
from lemming.commands.screen import counted, one_line, show, show_json, tell
from lemming.service.restore import restore as put_in_place


def restore(
    file: Annotated[Path, argument("FILE", "What `lemming backup` wrote.")],
    folder: Annotated[
        Path, argument("[DIR]", "Empty, or made if need be. Default: the current folder.")
    ] = Path(),
    as_json: AsJson = False,
) -> None:
    """Put the organisation that a backup holds into a folder.

    The archive is unpacked beside its place and compared with what it says it holds; only then it is put in
    place. One that is damaged, cut short, or holds what would lead out of the folder leaves nothing behind.
    It goes on with the tick that was next then: what was written and spent later it does not know.

    \b
    Examples:
      lemming restore ~/backups/news-20261122T090000Z.tar.gz news
      lemming -C news verify
    """
    place = Path(os.path.abspath(folder.expanduser()))
    done = put_in_place(Path(os.path.abspath(file.expanduser())), place)
    if as_json:
        facts = {"org": str(done.folder), "tick": done.tick, "agents": done.manifest.agents}
        show_json("restored", {**facts, "files": done.manifest.files, "broken": done.broken})
        return
    show(str(done.folder))
    agents = ", ".join(done.manifest.agents) or "nobody"
    tell(f"tick {done.tick} is next; {counted(len(done.manifest.agents), 'agent')}: {one_line(agents, 300)}")
    tell(f"made on {done.manifest.made_at[:16]}Z of {one_line(done.manifest.org, 80)}")
    for name, why in done.broken.items():
        tell(f"{name}: {one_line(why, 400)}", style="yellow")
    tell(f"`lemming -C {folder} verify` checks every file against the journals")
