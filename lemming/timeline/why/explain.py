"""Where something came from: the turn that wrote it, what that turn could see, and back through those.

It says what a turn could see and what it wrote. It does not claim that the one caused the other.
"""

from __future__ import annotations

import os
from collections import deque
from hashlib import sha256
from pathlib import Path

from lemming.kernel.agents import agent_folders
from lemming.kernel.base import paths
from lemming.kernel.base.errors import UsageError
from lemming.kernel.files.stamps import is_folder
from lemming.kernel.mail.capability_notes import CallNote, notes_of
from lemming.kernel.org.organisation import OrgPath
from lemming.timeline.record import TurnRecord
from lemming.timeline.why.seen import turn_of_tree
from lemming.timeline.why.things import CHANGED, Thing, TracedTurn, lost_ticks, read_file, thing_at, unwritten
from lemming.timeline.why.writings import Write, Writings

TURNS_TOLD = 200


def explain(writings: Writings, target: str, *, depth: int) -> Thing:
    """Return the target with the turns behind it, `depth` turns back; each is told once, and at most 200.

    Raises `UsageError` for a target that neither is there nor was ever written.
    """
    root = _find_target(writings, target)
    told: set[tuple[int, str]] = set()
    queue = deque([(root, depth)])
    while queue:
        thing, left = queue.popleft()
        if thing.moment is None:
            continue
        key = (thing.moment[0], thing.key or thing.author)
        if key in told:
            thing.cut = "told"
        elif left <= 0:
            thing.cut = "depth"
        elif len(told) >= TURNS_TOLD:
            thing.cut = "full"
        elif turn := writings.turn(*key):
            told.add(key)
            thing.turn = turn_of_tree(writings, turn, thing.path)
            queue.extend((seen, left - 1) for seen in thing.turn.saw)
    return root


def keep_only(root: Thing, text: str) -> bool:
    """Leave only the branches whose texts or names contain `text`; return whether there are any."""
    wanted = text.casefold()

    def holds(thing: Thing) -> bool:
        if thing.turn:
            thing.turn.saw = [seen for seen in thing.turn.saw if holds(seen)]
        is_here = wanted in thing.text.casefold() or wanted in thing.name.casefold()
        return is_here or bool(thing.turn and thing.turn.saw)

    return holds(root)


def sources(root: Thing) -> list[tuple[Thing, TracedTurn]]:
    """Return what no turn is known to have written, each once, with the nearest turn that saw it."""
    found: dict[tuple[str, ...], tuple[Thing, TracedTurn]] = {}
    queue = deque([root])
    while queue:
        thing = queue.popleft()
        if thing.turn is None:
            continue
        for seen in thing.turn.saw:
            if seen.by != "turn":
                found.setdefault((seen.what, seen.name, seen.remark, seen.text), (seen, thing.turn))
        queue.extend(thing.turn.saw)
    return list(found.values())


# --- the target ----------------------------------------------------------------------------------


def _find_target(writings: Writings, target: str) -> Thing:
    path = path_of(writings, target)
    if is_folder(f"{writings.base}/{path}"):
        raise UsageError(f'"{target}" is a folder', hint=_what_to_name(writings.base, path))
    here = read_file(writings.base, path)
    write = writings.last_write(path)
    # it is not what that turn wrote: another one may have, of which the ledger does not tell
    if write is None or (here is not None and sha256(here).hexdigest() != write.digest):
        write = writings.last_write(path, surely=True)
    if write is None and (here is None or _is_outside(writings.base, path)):
        raise UsageError(f'nothing is known of "{target}"', hint=_what_to_name(writings.base, path))
    content = here if here is not None or write is None else writings.content(write)
    thing = thing_at(path, content or b"")
    if write is None:
        return unwritten(writings, thing)
    thing.by, thing.moment, thing.author, thing.key = "turn", write.moment, write.agent, write.key
    if here is None:
        thing.remark = _why_gone(writings, path, write.moment[0])
    elif sha256(here).hexdigest() != write.digest:
        thing.remark = ", or ".join([CHANGED, *_other_hands(writings, thing, write)])
    elif (turn := writings.turn(write.moment[0], write.key)) and (said := _call_note(turn, path)):
        thing.remark = said.text
    return thing


def _what_to_name(base: OrgPath, path: str) -> str:
    """Return the paths to ask about in place of a path that is no file: of an agent, its own files."""
    name = path.rstrip("/").removeprefix("agents/")
    if name in agent_folders(base):
        return f"lemming why {paths.resume_file(name)}; lemming agents show {name} shows the agent"
    return "name an entry's id, a file of the organisation, or AGENT/memory/KEY"


def _is_outside(base: OrgPath, path: str) -> bool:
    """Return whether a path, or a link on its way, leads out of the organisation."""
    return not Path(base / path).resolve().is_relative_to(Path(base / ".").resolve())


def _call_note(turn: TurnRecord, path: str) -> CallNote | None:
    """Return what is to be said of the last call of a turn that wrote a file; None: nothing."""
    kept = next((use.kept for use in reversed(turn.tools) if path in use.files), {})
    return next(notes_of(kept), None)


def _why_gone(writings: Writings, path: str, written: int) -> str:
    """Return what became of a file that is not there any more."""
    if (expired := writings.expired_in(path)) is not None:
        return f"removed by retention in tick {expired}"
    if removed := writings.removed_in(path, written):
        return f"moved away by {removed[0]} in tick {removed[1]}"
    return "gone since"


def _other_hands(writings: Writings, thing: Thing, write: Write) -> list[str]:
    """Return who else may have changed a file since a turn wrote it."""
    others = []
    if thing.what == "file" and (tools := writings.outside_tools_since(write.agent, write.moment[0])):
        others.append(f"by {write.agent} with {', '.join(tools)}")
    if lost := writings.lost(after=write.moment[0]):
        others.append(lost_ticks(lost))
    return others


def path_of(writings: Writings, target: str) -> str:
    """Return the path a person means: relative to the organisation, or absolute for one outside it."""
    base, parts = writings.base, target.split("/")
    if len(parts) == 3 and parts[1] == "memory" and paths.AGENT_NAME.match(parts[0]):
        try:
            return paths.memory_file(parts[0], parts[2].removesuffix(".json"))
        except ValueError as error:
            raise UsageError(str(error)) from error
    if target.isalnum():
        return writings.path_of_entry(target) or target
    for place in map(Path, (os.path.abspath(target), os.path.normpath(base / target))):
        if place.exists() and place.is_relative_to(base):
            return place.relative_to(base).as_posix()
    return target.removeprefix("./")
