"""`lemming fork`: a second organisation that goes on from a tick of this one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lemming.agents import survey_agents
from lemming.commands.options import AsJson, argument, option
from lemming.commands.org import find_org
from lemming.commands.screen import one_line, show, show_json, tell
from lemming.timeline.fork import Setting
from lemming.timeline.fork import fork as make_fork
from lemming.timeline.unkept import past_states


def fork(
    ctx: typer.Context,
    folder: Annotated[Path, argument("DIR", "Where; empty, or made if need be.")],
    at: Annotated[str, option("--at TICK", "A tick, or a commit of `lemming history`.")],
    settings: Annotated[
        list[str] | None,
        option(
            "--set FILE:POINTER=VALUE",
            "Change one value of a JSON file in the fork; JSON, else text. May be repeated.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make an organisation in a folder that goes on from where this one was after a tick.

    It has the files, and the journals up to that tick; from there on it lives on its own. This organisation
    is not touched. Where no history is kept, what turns wrote comes from the journals, and what people wrote
    (resumes, settings, shared files) is as it is now.

    \b
    Examples:
      lemming fork --at 42 ../what-if
      lemming fork --at 42 ../frugal --set agents/editor/resume.json:/model/key=fast
    """
    base = find_org(ctx)
    past, place = past_states(base), folder.expanduser().resolve()
    state = past.state(at)
    changed = make_fork(past, state, place, [Setting.parse(text) for text in settings or []])
    broken = {name: str(error) for name, error in survey_agents(place).broken.items()}
    if as_json:
        facts = {"org": str(place), "from": str(base), "at": state.tick, "next_tick": state.tick + 1}
        show_json("fork", {**facts, "changed": changed, "broken": broken, "remark": past.remark})
        return
    show(str(place))
    if past.remark:
        tell(past.remark)
    tell(f"as after tick {state.tick}; `lemming -C {folder} run-once` runs tick {state.tick + 1}")
    for name, why in broken.items():
        tell(f"{name}: {one_line(why, 400)}", style="yellow")
