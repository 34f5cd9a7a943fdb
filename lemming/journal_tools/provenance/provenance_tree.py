"""Provenance of a target: the turn that wrote the target, the content visible to this turn, and so on backwards.

The tree shows what a turn could see and what it wrote, and makes no claim of cause and effect.
"""

from __future__ import annotations

import os
from collections import deque
from hashlib import sha256
from pathlib import Path

from lemming.journal_tools.provenance.provenance_node import (
    CHANGED,
    ProvenanceNode,
    ProvenanceTurn,
    describe_lost_ticks,
    load_file,
    make_node,
    resolve_unknown_author,
)
from lemming.journal_tools.provenance.visible_nodes import build_provenance_turn
from lemming.journal_tools.provenance.write_log import FileWrite, WriteLog
from lemming.journal_tools.recorded_tick import TurnRecord
from lemming.kernel.agents import list_agent_folders
from lemming.kernel.base import paths
from lemming.kernel.base.errors import UsageError
from lemming.kernel.files.stat_cache import is_folder
from lemming.kernel.inboxes.capability_state import CallNote, find_call_notes
from lemming.kernel.org.organisation import OrgPath

MAX_TURNS = 200


def build_provenance(write_log: WriteLog, target: str, *, depth: int) -> ProvenanceNode:
    """Return the target with the tree of turns behind it, `depth` levels deep. Each turn appears once, at
    most 200 in total.

    Raises `UsageError` for a target that does not exist and was never written.
    """
    root = _find_target(write_log, target)
    visited: set[tuple[int, str]] = set()
    queue = deque([(root, depth)])
    while queue:
        node, remaining_depth = queue.popleft()
        if node.position is None:
            continue
        key = (node.position[0], node.key or node.author)
        if key in visited:
            node.cut = "told"
        elif remaining_depth <= 0:
            node.cut = "depth"
        elif len(visited) >= MAX_TURNS:
            node.cut = "full"
        elif turn := write_log.find_turn(*key):
            visited.add(key)
            node.turn = build_provenance_turn(write_log, turn, node.path)
            queue.extend((visible_node, remaining_depth - 1) for visible_node in node.turn.saw)
    return root


def filter_branches(root: ProvenanceNode, text: str) -> bool:
    """Keep only the branches with `text` in a text or a name; return True if any branch remains."""
    search_text = text.casefold()

    def has_match(node: ProvenanceNode) -> bool:
        if node.turn:
            node.turn.saw = [child for child in node.turn.saw if has_match(child)]
        is_match = search_text in node.text.casefold() or search_text in node.name.casefold()
        return is_match or bool(node.turn and node.turn.saw)

    return has_match(root)


def find_sources(root: ProvenanceNode) -> list[tuple[ProvenanceNode, ProvenanceTurn]]:
    """Return the nodes without a known turn as author, each once, with the nearest turn that saw the node."""
    sources_by_key: dict[tuple[str, ...], tuple[ProvenanceNode, ProvenanceTurn]] = {}
    queue = deque([root])
    while queue:
        node = queue.popleft()
        if node.turn is None:
            continue
        for visible_node in node.turn.saw:
            if visible_node.by != "turn":
                sources_by_key.setdefault(
                    (visible_node.what, visible_node.name, visible_node.remark, visible_node.text),
                    (visible_node, node.turn),
                )
        queue.extend(node.turn.saw)
    return list(sources_by_key.values())


# --- the target ----------------------------------------------------------------------------------


def _find_target(write_log: WriteLog, target: str) -> ProvenanceNode:
    path = resolve_target(write_log, target)
    if is_folder(f"{write_log.base}/{path}"):
        raise UsageError(f'expected a file, got the folder "{target}"', hint=_suggest_targets(write_log.base, path))
    current_content = load_file(write_log.base, path)
    write = write_log.find_last_write(path)
    if write is None and (current_content is None or _is_outside_org(write_log.base, path)):
        raise UsageError(f'"{target}" is unknown', hint=_suggest_targets(write_log.base, path))
    content = current_content if current_content is not None or write is None else write_log.load_content(write)
    node = make_node(path, content or b"")
    if write is None:
        return resolve_unknown_author(write_log, node)
    node.by, node.position, node.author, node.key = "turn", write.position, write.agent, write.key
    if current_content is None:
        node.remark = _explain_missing(write_log, path, write.position[0])
    elif sha256(current_content).hexdigest() != write.digest:
        node.remark = ", or ".join([CHANGED, *_list_other_writers(write_log, node, write)])
    elif (turn := write_log.find_turn(write.position[0], write.key)) and (call_note := _find_call_note(turn, path)):
        node.remark = call_note.text
    return node


def _suggest_targets(base: OrgPath, path: str) -> str:
    """Return a hint with valid targets in place of a path without a file. For an agent, its own files."""
    name = path.rstrip("/").removeprefix("agents/")
    if name in list_agent_folders(base):
        return f"use lemming why {paths.resume_file(name)}; lemming agents show {name} shows the agent"
    return "name an entry's id, a file of the organisation, or AGENT/memory/KEY; in a worker's repository, PATH:LINE"


def _is_outside_org(base: OrgPath, path: str) -> bool:
    """Return True if a path, or a link on the path, leads out of the organisation."""
    return not Path(base / path).resolve().is_relative_to(Path(base / ".").resolve())


def _find_call_note(turn: TurnRecord, path: str) -> CallNote | None:
    """Return the capability note on the last call of a turn that wrote a file, or None."""
    call_data = next((tool_use.kept for tool_use in reversed(turn.tools) if path in tool_use.files), {})
    return next(find_call_notes(call_data), None)


def _explain_missing(write_log: WriteLog, path: str, write_tick: int) -> str:
    """Return a description of the removal of a missing file."""
    if (expiry_tick := write_log.find_expiry_tick(path)) is not None:
        return f"removed by retention in tick {expiry_tick}"
    if removal := write_log.find_removal(path, write_tick):
        return f"moved away by {removal[0]} in tick {removal[1]}"
    return "gone since"


def _list_other_writers(write_log: WriteLog, node: ProvenanceNode, write: FileWrite) -> list[str]:
    """Return descriptions of other possible changes to a file since a turn wrote the file."""
    writers = []
    if node.what == "file" and (tools := write_log.find_external_tools(write.agent, write.position[0])):
        writers.append(f"by {write.agent} with {', '.join(tools)}")
    if lost_ticks_text := write_log.list_lost_ticks(after_tick=write.position[0]):
        writers.append(describe_lost_ticks(lost_ticks_text))
    return writers


def resolve_target(write_log: WriteLog, target: str) -> str:
    """Return the path of a target: relative to the organisation, or absolute for a file outside."""
    base, parts = write_log.base, target.split("/")
    if len(parts) == 3 and parts[1] == "memory" and paths.AGENT_NAME.match(parts[0]):
        try:
            return paths.memory_file(parts[0], parts[2].removesuffix(".json"))
        except ValueError as error:
            raise UsageError(str(error)) from error
    if target.isalnum():
        return write_log.find_entry_path(target) or target
    for path in map(Path, (os.path.abspath(target), os.path.normpath(base / target))):
        if path.exists() and path.is_relative_to(base):
            return path.relative_to(base).as_posix()
    return target.removeprefix("./")
