"""`lemming rewind`: this organisation back where it was after a tick."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lemming.commands.changes import files_in_short
from lemming.commands.options import AsJson, option
from lemming.commands.org import find_org
from lemming.commands.screen import counted, show, show_json, tell
from lemming.history.read import History
from lemming.history.rewind import Rewind, plan_rewind
from lemming.history.rewind import rewind as do_rewind
from lemming.tick.runtime import open_org


def rewind(
    ctx: typer.Context,
    to: Annotated[str, option("--to TICK", "A tick, or a commit of `lemming history`.")],
    is_sure: Annotated[bool, option("--yes -y", "Do it; without this, only show it.")] = False,
    as_json: AsJson = False,
) -> None:
    """Bring this organisation back to where it was after a tick.

    The files as they are now are kept in the history first, and the journals of later ticks are moved to
    aside/: nothing is lost. Without --yes it only shows what it would do.

    \b
    Example:
      lemming rewind --to 41 --yes
    """
    base = find_org(ctx)
    past = History(Path(base))
    if not is_sure:
        planned = plan_rewind(past, past.state(to))
        _show(planned, as_json=as_json)
        if not as_json:
            tell(f"nothing has been changed; `lemming rewind --to {to} --yes` does it")
        return
    with open_org(base, command="rewind") as runtime:
        done = do_rewind(runtime, past, past.state(to))
    _show(done, as_json=as_json)
    if not as_json:
        tell(f"tick {done.state.tick + 1} is next; `lemming rewind --to @{done.kept[:10]} --yes` undoes it")


def _show(rewound: Rewind, *, as_json: bool) -> None:
    if as_json:
        show_json("rewind", rewound.as_json())
        return
    for file in rewound.changes.files:
        show(f"{file.change:<8}  {file.path}")
    later = counted(len(rewound.journals), "journal")
    where = (
        f" moved to {rewound.aside}" if rewound.aside else " to be moved aside" if rewound.journals else ""
    )
    tell(f"to tick {rewound.state.tick}: {files_in_short(rewound.changes.files)}, {later}{where}")
