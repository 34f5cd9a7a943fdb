"""What a turn could see, each thing with the turn or the person that wrote it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any

from lemming.kernel.base import paths
from lemming.kernel.base.jsontext import JsonProblem, compact, parse
from lemming.kernel.base.payload_text import text_of_payload
from lemming.kernel.base.quoting import quoted
from lemming.kernel.mail.capability_notes import notes_of
from lemming.kernel.tools import shipped_tools
from lemming.timeline.record import ToolUse, TurnRecord
from lemming.timeline.repair.unknown import CALL, RETRY
from lemming.timeline.why.sight import SeenEntry, Shown, sight_of
from lemming.timeline.why.things import (
    CHANGED,
    PERSON,
    Thing,
    TracedTurn,
    entry_text,
    lost_ticks,
    memory_text,
    read_file,
    unwritten,
)
from lemming.timeline.why.writings import Moment, Writings

MEMORY_FILE = re.compile(r"agents/([^/]+)/memory/([^/]+)\.json")
CUT_SHORT = ("deadline", "out_of_credits", "paused")
COMPARED_CHARS = 2000  # what tools give of a long file is cut


def turn_of_tree(writings: Writings, turn: TurnRecord, place: str) -> TracedTurn:
    """Return a turn with everything it could see when it wrote what is at a place."""
    tick = writings.tick(turn.tick)
    assert tick is not None
    sight = sight_of(turn, tick.plan.everyone)
    told = TracedTurn(turn.tick, turn.agent, turn.at or tick.begin.at, turn.status)
    told.cut_short = turn.report.reason if turn.report and turn.report.end in CUT_SHORT else ""
    told.saw += [_seen_entry(writings, turn, seen) for seen in sight.entries]
    told.saw += _seen_memories(writings, turn, sight)
    told.saw += [_seen_file(writings, turn, path, text, sight.is_brief) for path, text in sight.files.items()]
    told.saw += [_carried_result(writings, turn, result) for result in (*turn.results, *_kept(turn))]
    told.saw += _tool_results(writings, turn, place)
    told.saw += _resume(writings, turn)
    return told


def _seen_entry(writings: Writings, turn: TurnRecord, seen: SeenEntry) -> Thing:
    if seen.author is None or seen.tick is None:
        path = writings.path_of_entry(seen.id)
        match = paths.ENTRY_FILE.match(path.rpartition("/")[2]) if path else None
        if path is None or match is None:
            return Thing("entry", seen.id, by="unknown", remark="no file and no journal tells of it any more")
        author, tick = path.split("/")[1], int(match[1])
    else:
        author, tick = seen.author, seen.tick
        path = paths.entry_file(author, tick, seen.id)
    write = writings.write_in(tick, path)
    here = read_file(writings.base, path)
    content = here if here is not None else (writings.content(write) if write else None)
    thing = Thing("entry", seen.id, entry_text(content or b""), path, author, is_new=seen.is_new)
    if isinstance(seen.payload, dict):
        thing.text = text_of_payload(seen.payload)
    if write is not None:
        thing.by, thing.moment, thing.key = "turn", write.moment, write.key
        if here is not None and sha256(here).hexdigest() != write.digest:
            thing.remark = CHANGED
        return thing
    lost = writings.lost(after=tick - 1, before=tick + 1)
    is_unknown = lost and tick <= turn.tick and not writings.is_for_a_person(author, turn.tick)
    thing.by = "unknown" if is_unknown else "person"
    thing.remark = f"{PERSON}, or {lost_ticks(lost)}" if is_unknown else PERSON
    return thing


def _seen_memories(writings: Writings, turn: TurnRecord, sight: Shown) -> Iterator[Thing]:
    for key, value in sight.memory.items():
        path = paths.memory_file(turn.agent, key) if paths.MEMORY_KEY.match(key) else ""
        if sight.is_brief and not _is_memory(writings, turn, path):
            continue
        text = value if isinstance(value, str) else compact(value).decode()
        yield _seen_memory(writings, turn, key, path, text, sight.is_brief)


def _is_memory(writings: Writings, turn: TurnRecord, path: str) -> bool:
    """Return whether a line of a brief prompt was a memory: it is there, or a turn had written it."""
    return (writings.base / path).is_file() or writings.last_write(path, before=_moment(turn)) is not None


def _seen_memory(
    writings: Writings, turn: TurnRecord, key: str, path: str, text: str, is_brief: bool
) -> Thing:
    thing = Thing("memory", f"{turn.agent}/memory/{key}", text, path, turn.agent)

    def is_same(content: bytes) -> bool:
        written = memory_text(content, path)
        return " ".join(written.split()).startswith(" ".join(text.split())) if is_brief else written == text

    return _by_turn_or_hand(writings, turn, thing, is_same)


def _seen_file(writings: Writings, turn: TurnRecord, path: str, shown: str, is_brief: bool) -> Thing:
    thing = Thing("file", path, shown, path)
    if granted := MEMORY_FILE.fullmatch(path):
        owner, key = granted[1], granted[2]
        thing = Thing("memory", f"{owner}/memory/{key}", shown, path, owner)

    def is_same(content: bytes) -> bool:
        if granted:
            return is_brief or shown.strip() in quoted(memory_text(content, path))
        return is_brief or shown.strip() in quoted(content.decode("utf-8", "replace"))

    return _by_turn_or_hand(writings, turn, thing, is_same)


def _by_turn_or_hand(
    writings: Writings, reader: TurnRecord, thing: Thing, is_same: Callable[[bytes], bool]
) -> Thing:
    """Return a thing with the turn that wrote it last, unless its reader was shown something else.

    `is_same` says of what was written whether it is what was shown.
    """
    write, is_shown = None, False
    # first where it most likely is: looking through all journals takes long
    for surely in (False, True):
        write = writings.last_write(thing.path, before=_moment(reader), surely=surely)
        if is_shown := write is not None and is_same(writings.content(write)):
            break
    if write is None:
        return unwritten(writings, thing)
    if is_shown:
        thing.by, thing.moment, thing.author, thing.key = "turn", write.moment, write.agent, write.key
        return thing
    lost = writings.lost(after=write.moment[0], before=reader.tick)
    tools = [] if thing.what == "memory" else writings.outside_tools_since(write.agent, write.moment[0])
    others = [f"by {write.agent} with {', '.join(tools)}"] if tools else []
    others += [lost_ticks(lost)] if lost else []
    by = ", or ".join(["by hand", *others])
    thing.by = "unknown" if others else "person"
    thing.remark = f"changed {by}, after {write.agent} wrote it in tick {write.moment[0]}"
    return thing


def _carried_result(writings: Writings, turn: TurnRecord, result: dict[str, Any]) -> Thing:
    """A result of the agent's earlier turn, or what a person found out about a call.

    What was read in that turn is followed to who wrote it.
    """
    thing = Thing("result", _call(result["tool"], result["args"]), result["output"], author=turn.agent)
    if CALL in result:
        word = "had run again" if RETRY in result else "found out about"
        thing.by, thing.remark = "person", f"what a person {word}: call {result[CALL]}"
        return thing
    before = turn.started.state["tick"] if turn.started else -1
    thing.by, thing.moment = "turn", (before, 0)
    use = ToolUse(index=0, **{key: result[key] for key in ("tool", "args", "success", "output")})
    source, earlier = _source(turn, use), writings.turn(before, turn.agent)
    if source and earlier and source not in earlier.writes:
        return _read_result(writings, earlier, thing, source)
    return thing


def _kept(turn: TurnRecord) -> Iterator[dict[str, Any]]:
    """Yield what earlier turns for the same request had called; answers of others are entries."""
    task = turn.started.task if turn.started else None
    begun = task["begun"] if task else {}
    asked = {one.get("call") for one in begun.get("asked", ())}
    for number, result in enumerate(begun.get("results", ()), 1):
        if number not in asked:
            yield result


def _tool_results(writings: Writings, turn: TurnRecord, place: str) -> Iterator[Thing]:
    """Yield what the turn's own tools had given by then; for a file or a memory, where that came from."""
    own: set[str] = set()
    for use in turn.tools_shown(place):
        thing = Thing("result", _call(use.tool, use.args), use.output, author=turn.agent, by="turn")
        source = _source(turn, use)
        if use.is_unknown:
            thing.by, thing.remark = "unknown", "nobody knows whether it happened (`lemming repair`)"
        elif said := next(notes_of(use.kept), None):
            thing.remark = said.text
        elif source and source not in own and not _is_own(turn, source, use.output):
            thing = _read_result(writings, turn, thing, source)
        yield thing
        own.update(use.files)


def _is_own(turn: TurnRecord, source: str, output: str) -> bool:
    """Return whether a memory that was read is what the turn itself had just saved."""
    effect = turn.writes.get(source)
    is_memory = source.startswith(paths.memory_folder(turn.agent))
    return effect is not None and is_memory and _same_json(output, memory_text(effect.content, source))


def _source(turn: TurnRecord, use: ToolUse) -> str:
    """Return the file whose content a call gave; empty when it gave none, or the tool does not ship."""
    if not use.success or not isinstance(use.args, dict):
        return ""
    return next((tool.source(turn.agent, use.args) for tool in shipped_tools([use.tool])), "")


def _read_result(writings: Writings, turn: TurnRecord, thing: Thing, source: str) -> Thing:
    thing.path = source

    def is_same(content: bytes) -> bool:
        if source.startswith(paths.memory_folder(turn.agent)):
            return _same_json(thing.text, memory_text(content, source))
        return thing.text[:COMPARED_CHARS] == content.decode("utf-8", "replace")[:COMPARED_CHARS]

    return _by_turn_or_hand(writings, turn, thing, is_same)


def _resume(writings: Writings, turn: TurnRecord) -> Iterator[Thing]:
    """Yield the agent's resume, if another agent wrote it."""
    path = paths.resume_file(turn.agent)
    if write := writings.last_write(path, before=_moment(turn)):
        thing = Thing("file", path, "its instructions", path, write.agent, by="turn", moment=write.moment)
        thing.key = write.key
        yield thing


def _moment(turn: TurnRecord) -> Moment:
    return turn.tick, turn.place


def _call(tool: str, args: Any) -> str:
    shown = args if isinstance(args, str) else compact(args).decode() if args else ""
    return f"{tool} {shown}".rstrip()


def _same_json(shown: str, written: str) -> bool:
    try:
        plain = parse(shown)
    except JsonProblem:
        return shown == written
    return written == (plain if isinstance(plain, str) else compact(plain).decode())
