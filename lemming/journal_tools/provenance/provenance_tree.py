"""Provenance of a target: the turn that wrote the target, the content visible to this turn, and so on backwards.

The tree shows the content visible to a turn and the written files, and makes no claim of cause and effect.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

from lemming.journal_tools.provenance.prompt_parser import ParsedPrompt, ShownEntry, parse_prompt
from lemming.journal_tools.provenance.write_log import (
    CHANGED,
    FileWrite,
    ProvenanceNode,
    ProvenanceTurn,
    TurnPosition,
    WriteLog,
    describe_lost_ticks,
    describe_origin,
    extract_entry_text,
    extract_memory_text,
    get_payload_text,
    load_file,
    make_node,
    resolve_unknown_author,
)
from lemming.journal_tools.recorded_tick import RecordedTurn, ToolUse
from lemming.journal_tools.repair.unknown_calls import CALL, RETRY
from lemming.kernel.agents import list_agent_folders
from lemming.kernel.base import paths
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import dump_compact
from lemming.kernel.base.untrusted_quoting import escape_markers
from lemming.kernel.files.stat_cache import is_folder
from lemming.kernel.journal.capability_queries import find_call_notes
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.tools import iter_shipped_tools
from lemming.libraries.lenient_json import parse_or_default

EARLY_ENDS = ("deadline", "out_of_credits", "paused")
MAX_COMPARED_CHARS = 2000  # tools truncate long files


def build_provenance_turn(write_log: WriteLog, turn: RecordedTurn, path: str) -> ProvenanceTurn:
    """Return a turn with all content visible at the time it wrote the file at `path`."""
    tick = write_log.tick(turn.tick)
    assert tick is not None
    parsed_prompt = parse_prompt(turn, tick.plan.all_agents)
    provenance_turn = ProvenanceTurn(turn.tick, turn.agent, turn.last_answer_time or tick.start_record.at, turn.status)
    provenance_turn.cut_short = turn.report.reason if turn.report and turn.report.end in EARLY_ENDS else ""
    provenance_turn.saw += [_build_entry_node(write_log, turn, entry) for entry in parsed_prompt.entries]
    provenance_turn.saw += _iter_memory_nodes(write_log, turn, parsed_prompt)
    provenance_turn.saw += [
        _build_file_node(write_log, turn, file_path, text, parsed_prompt.is_brief)
        for file_path, text in parsed_prompt.files.items()
    ]
    provenance_turn.saw += [
        _build_carried_result(write_log, turn, result)
        for result in (*turn.visible_results, *_iter_earlier_results(turn))
    ]
    provenance_turn.saw += _iter_tool_results(write_log, turn, path)
    provenance_turn.saw += _iter_resume_node(write_log, turn)
    return provenance_turn


def _build_entry_node(write_log: WriteLog, turn: RecordedTurn, shown_entry: ShownEntry) -> ProvenanceNode:
    author, tick = shown_entry.author, shown_entry.tick
    if author is None or tick is None:
        path = write_log.find_entry_path(shown_entry.id) or ""
        match = paths.ENTRY_FILE.match(path.rpartition("/")[2])
        if match is None:
            return ProvenanceNode("entry", shown_entry.id, by="unknown", remark="its file and its journal are missing")
        author, tick = path.split("/")[1], int(match[1])
    path = paths.entry_file(author, tick, shown_entry.id)
    write = write_log.find_write(tick, path)
    current_content = load_file(write_log.base, path)
    content = current_content if current_content is not None else (write_log.load_content(write) if write else None)
    write = write or write_log.find_renamed_entry(path, current_content)
    node = ProvenanceNode(
        "entry", shown_entry.id, extract_entry_text(content or b""), path, author, is_new=shown_entry.is_new
    )
    if isinstance(shown_entry.payload, dict):
        node.text = get_payload_text(shown_entry.payload)
    if write is not None:
        node.by, node.position, node.key = "turn", write.position, write.key
        if current_content is not None and sha256(current_content).hexdigest() != write.digest:
            node.remark = CHANGED
        return node
    node.remark = describe_origin(write_log, author)
    lost_ticks_text = write_log.list_lost_ticks(after_tick=tick - 1, before_tick=tick + 1)
    if lost_ticks_text and tick <= turn.tick and not write_log.is_person(author, turn.tick):
        node.by, node.remark = "unknown", f"{node.remark}, or {describe_lost_ticks(lost_ticks_text)}"
    return node


def _iter_memory_nodes(write_log: WriteLog, turn: RecordedTurn, prompt: ParsedPrompt) -> Iterator[ProvenanceNode]:
    for key, value in prompt.memory.items():
        path = paths.memory_file(turn.agent, key) if paths.MEMORY_KEY.match(key) else ""
        # A line of a brief prompt is a memory if there is a file, or an earlier turn wrote one.
        if prompt.is_brief and not (
            (write_log.base / path).is_file() or write_log.find_last_write(path, position=_turn_position(turn))
        ):
            continue
        text = value if isinstance(value, str) else dump_compact(value).decode()

        def is_same(content: bytes, path: str = path, text: str = text) -> bool:
            written = extract_memory_text(content, path)
            return "".join(written.split()).startswith("".join(text.split())) if prompt.is_brief else written == text

        node = ProvenanceNode("memory", f"{turn.agent}/memory/{key}", text, path, turn.agent)
        yield _resolve_author(write_log, turn, node, is_same)


def _build_file_node(
    write_log: WriteLog, turn: RecordedTurn, path: str, visible_text: str, is_brief: bool
) -> ProvenanceNode:
    node = make_node(path, b"")  # a file, or a memory of another agent
    node.text = visible_text

    def is_same(content: bytes) -> bool:
        return is_brief or visible_text.strip() in escape_markers(make_node(path, content).text)

    return _resolve_author(write_log, turn, node, is_same)


def _resolve_author(
    write_log: WriteLog, reader: RecordedTurn, node: ProvenanceNode, is_same: Callable[[bytes], bool]
) -> ProvenanceNode:
    """Return a node with the last author: the turn that wrote the content, unless the reader saw other content.

    `is_same` tells if written content equals the visible content.
    """
    write = write_log.find_last_write(node.path, position=_turn_position(reader))
    if write is None:
        return resolve_unknown_author(write_log, node)
    if is_same(write_log.load_content(write)):
        node.set_writer(write)
        return node
    other_writers = _list_other_writers(write_log, node, write, reader.tick)
    writers_text = ", or ".join(["by hand", *other_writers])
    node.by = "unknown" if other_writers else "person"
    node.remark = f"changed {writers_text}, after {write.agent} wrote it in tick {write.position[0]}"
    return node


def _list_other_writers(
    write_log: WriteLog, node: ProvenanceNode, write: FileWrite, before_tick: int | None = None
) -> list[str]:
    """Return descriptions of other possible changes to a file since a turn wrote the file."""
    writers, (tick, _) = [], write.position
    if node.what in ("file", "result") and (tools := write_log.find_external_tools(write.agent, tick)):
        writers.append(f"by {write.agent} with {', '.join(tools)}")
    if lost_ticks_text := write_log.list_lost_ticks(after_tick=tick, before_tick=before_tick):
        writers.append(describe_lost_ticks(lost_ticks_text))
    return writers


def _build_carried_result(write_log: WriteLog, turn: RecordedTurn, result: dict[str, Any]) -> ProvenanceNode:
    """Return the node of an earlier turn's result or a person's note. A file that was read is traced to its author."""
    node = ProvenanceNode("result", _format_call(result["tool"], result["args"]), result["output"], author=turn.agent)
    if CALL in result:
        action = "had run again" if RETRY in result else "found out about"
        node.by, node.remark = "person", f"what a person {action}: call {result[CALL]}"
        return node
    previous_tick = turn.started.state["tick"] if turn.started else -1
    node.by, node.position = "turn", (previous_tick, 0)
    tool_use = ToolUse(index=0, **{key: result[key] for key in ("tool", "args", "success", "output")})
    source, earlier = _find_source_file(turn, tool_use), write_log.find_turn(previous_tick, turn.agent)
    if source and earlier and source not in earlier.writes:
        return _resolve_result_source(write_log, earlier, node, source)
    return node


def _iter_earlier_results(turn: RecordedTurn) -> Iterator[dict[str, Any]]:
    """Yield the tool results of earlier turns for the same request; answers of other agents are entries."""
    task = turn.started.task if turn.started else None
    open_request = task["begun"] if task else {}
    sub_request_calls = {sub_request.get("call") for sub_request in open_request.get("asked", ())}
    for number, result in enumerate(open_request.get("results", ()), 1):
        if number not in sub_request_calls:
            yield result


def _iter_tool_results(write_log: WriteLog, turn: RecordedTurn, path: str) -> Iterator[ProvenanceNode]:
    """Yield the turn's own tool results so far; the content of a file or memory is traced to its author."""
    own_files: set[str] = set()
    for tool_use in turn.find_known_tool_uses(path):
        node = ProvenanceNode(
            "result", _format_call(tool_use.tool, tool_use.args), tool_use.output, author=turn.agent, by="turn"
        )
        source = _find_source_file(turn, tool_use)
        if tool_use.is_unknown:
            node.by, node.remark = "unknown", "its outcome is unknown (`lemming repair`)"
        elif call_note := next(find_call_notes(tool_use.kept), None):
            node.remark = call_note.text
        elif source and source not in own_files:
            effect, is_memory = turn.writes.get(source), source.startswith(paths.memory_folder(turn.agent))
            written = extract_memory_text(effect.content, source) if effect and is_memory else None
            if written is None or not _is_same_json(tool_use.output, written):  # else the turn had just written it
                node = _resolve_result_source(write_log, turn, node, source)
        yield node
        own_files.update(tool_use.files)


def _find_source_file(turn: RecordedTurn, tool_use: ToolUse) -> str:
    """Return the path of the file a shipped tool read in this call, or an empty string."""
    if not tool_use.success or not isinstance(tool_use.args, dict):
        return ""
    return next((tool.source_file(turn.agent, tool_use.args) for tool in iter_shipped_tools([tool_use.tool])), "")


def _resolve_result_source(
    write_log: WriteLog, turn: RecordedTurn, node: ProvenanceNode, source: str
) -> ProvenanceNode:
    node.path = source

    def is_same(content: bytes) -> bool:
        if source.startswith(paths.memory_folder(turn.agent)):
            return _is_same_json(node.text, extract_memory_text(content, source))
        return node.text[:MAX_COMPARED_CHARS] == content.decode("utf-8", "replace")[:MAX_COMPARED_CHARS]

    return _resolve_author(write_log, turn, node, is_same)


def _iter_resume_node(write_log: WriteLog, turn: RecordedTurn) -> Iterator[ProvenanceNode]:
    """Yield the agent's resume if another agent wrote the file."""
    path = paths.resume_file(turn.agent)
    if write := write_log.find_last_write(path, position=_turn_position(turn)):
        node = ProvenanceNode("file", path, "its instructions", path)
        node.set_writer(write)
        yield node


def _turn_position(turn: RecordedTurn) -> TurnPosition:
    return turn.tick, turn.rank


def _format_call(tool: str, args: Any) -> str:
    args_text = args if isinstance(args, str) else dump_compact(args).decode() if args else ""
    return f"{tool} {args_text}".rstrip()


def _is_same_json(visible_text: str, written: str) -> bool:
    plain = parse_or_default(visible_text, visible_text)
    return written == (plain if isinstance(plain, str) else dump_compact(plain).decode())


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
        turn = queue.popleft().turn
        for node in turn.saw if turn else ():
            queue.append(node)
            if node.by != "turn" and turn:
                sources_by_key.setdefault((node.what, node.name, node.remark, node.text), (node, turn))
    return list(sources_by_key.values())


def _find_target(write_log: WriteLog, target: str) -> ProvenanceNode:
    path = resolve_target(write_log, target)
    if is_folder(f"{write_log.base}/{path}"):
        raise UsageError(f'expected a file, got the folder "{target}"', hint=_suggest_targets(write_log.base, path))
    current_content = load_file(write_log.base, path)
    write = write_log.find_last_write(path) or write_log.find_renamed_entry(path, current_content)
    # a path, or a link on the path, may lead out of the organisation
    is_inside = Path(write_log.base / path).resolve().is_relative_to(Path(write_log.base / ".").resolve())
    if write is None and (current_content is None or not is_inside):
        raise UsageError(f'"{target}" is unknown', hint=_suggest_targets(write_log.base, path))
    content = current_content if current_content is not None or write is None else write_log.load_content(write)
    node = make_node(path, content or b"")
    if write is None:
        return resolve_unknown_author(write_log, node)
    node.set_writer(write)
    if current_content is None:
        removal = write_log.find_removal(path, write.position[0])
        actor = f"moved away by {removal[0]}" if removal and removal[0] else "removed by retention"
        node.remark = f"{actor} in tick {removal[1]}" if removal else "gone since"
    elif sha256(current_content).hexdigest() != write.digest:
        node.remark = ", or ".join([CHANGED, *_list_other_writers(write_log, node, write)])
    elif turn := write_log.find_turn(write.position[0], write.key):
        # the note of a capability on the last call that wrote the file
        call_data = next((tool_use.kept for tool_use in reversed(turn.tools) if path in tool_use.files), {})
        node.remark = next((call_note.text for call_note in find_call_notes(call_data)), "")
    return node


def _suggest_targets(base: OrgPath, path: str) -> str:
    """Return a hint with valid targets in place of a path without a file. For an agent, its own files."""
    name = path.rstrip("/").removeprefix("agents/")
    if name in list_agent_folders(base):
        return f"use lemming why {paths.resume_file(name)}; lemming agents show {name} shows the agent"
    return "name an entry's id, a file of the organisation, or AGENT/memory/KEY; in a worker's repository, PATH:LINE"


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
