"""The view of the past: file changes of a tick, and differences between two ticks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from lemming.git_history.git_repository import FOLDER
from lemming.git_history.history_reader import FileChange, GitHistory, StateDiff
from lemming.journal_tools.journal_history import diff_file, open_past
from lemming.journal_tools.provenance.write_log import WriteLog
from lemming.journal_tools.recorded_tick import RecordedTick
from lemming.kernel.base import paths
from lemming.kernel.base.errors import UsageError
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.tick.tick_counter import load_tick
from lemming.libraries.lenient_json import parse_object_or_empty
from lemming.queries.sentences import describe_payload, entry_text, truncate_value
from lemming.queries.views.tick_view import load_recorded_tick
from lemming.read_model.journal_ticks import started_journals

MAX_DIFF_CHARS = 200_000
MAX_JOURNALS_COMPARED = 1000
_TEXT_FILE = re.compile(r"diff --git a/\S+ b/(?P<path>agents/[^/\s]+/(?P<kind>outbox|memory)/\S+)\n")
JOURNAL_REMARK = "no history is kept here: this is what the tick's turns wrote, from its journal"


def build_past_view(org: OrgPath, *, old: int | None = None, new: int | None = None, agent: str = "") -> dict[str, Any]:
    """Return the file changes of tick `new`, or the differences between the ends of ticks `old` and `new`.

    Without `old`, the result covers tick `new`, by default the newest. With `old`, a missing `new` means the
    present. `agent`: only files of this agent.

    `remark` describes the reliability of the result; `said` is the current text of an entry or memory. Raises
    `UsageError` for a tick without any record.
    """
    if agent and not paths.AGENT_NAME.match(agent):
        raise UsageError(f'agent "{agent[:80]}" does not exist', hint=paths.AGENT_NAME_RULE)
    org = Organisation.from_path(org)
    next_tick = load_tick(org)
    if old is None:
        new = (started_journals(org, 1) or [0])[0] if new is None else new
        changes, remark = _load_tick_changes(org, new, agent)
    else:
        require_fast_history(org, "to compare two ticks")
        past = open_past(org.base)
        changes = past.changes_between(str(old), "now" if new is None else str(new), agent=agent)
        remark = past.reliability_note
    texts_by_path = dict(_iter_diff_texts(changes.diff))
    return {
        "old": old,
        "new": new,
        "agent": agent,
        "next_tick": next_tick,
        "remark": remark,
        "files": [{**asdict(file), "said": texts_by_path.get(file.path)} for file in changes.files],
        "diff": changes.diff[:MAX_DIFF_CHARS],
        "chars": len(changes.diff),
    }


def _iter_diff_texts(diff: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the current text of each entry and memory contained in a diff as a whole, by path."""
    for part in re.split(r"^(?=diff --git )", diff, flags=re.MULTILINE):
        head = _TEXT_FILE.match(part)
        if head is None:
            continue
        lines = part.partition("\n@@")[2].splitlines()[1:]
        # {}: taken away, or too long to be whole
        content = parse_object_or_empty("\n".join(line[1:] for line in lines if line[:1] in (" ", "+")))
        payload = content.get("payload")
        if head["kind"] == "outbox" and isinstance(payload, dict):
            text = entry_text(payload) or describe_payload(payload)
            yield head["path"], {"kind": str(content.get("kind")), "says": truncate_value(text)}
        elif head["kind"] == "memory" and "value" in content:
            text = f"{content.get('key')}: {truncate_value(content['value'])}"
            yield head["path"], {"kind": "memory", "says": text}


def _load_tick_changes(org: Organisation, tick: int, agent: str) -> tuple[StateDiff, str]:
    if _has_history(org):
        history = GitHistory(org.base)
        commit = history.find_commit(tick)
        return (history.diff_commit(commit, agent=agent) if commit else StateDiff([], "")), ""
    folder_prefix = f"{paths.agent_folder(agent)}/" if agent else ""
    turn_changes = _iter_turn_changes(org, load_recorded_tick(org, tick))
    changed_files = [pair for pair in turn_changes if pair[0].path.startswith(folder_prefix)]
    return StateDiff([file for file, _ in changed_files], "".join(diff for _, diff in changed_files)), JOURNAL_REMARK


def _iter_turn_changes(org: Organisation, record: RecordedTick) -> Iterator[tuple[FileChange, str]]:
    """Yield the files a tick's turns wrote or removed, sorted by path, each with the text of the change."""
    write_log = WriteLog(org)
    new_contents: dict[str, bytes | None] = dict.fromkeys(record.expired)
    first_turn_ranks: dict[str, int] = {}
    for turn in record.turns:
        new_contents |= dict.fromkeys(turn.report.removed if turn.report else ())
        new_contents |= {written_path: effect.content for written_path, effect in turn.writes.items()}
        first_turn_ranks = {**dict.fromkeys((*turn.writes, *record.expired), turn.rank), **first_turn_ranks}
    for path in sorted(new_contents):
        write = write_log.find_last_write(path, position=(record.tick, first_turn_ranks.get(path, 0)))
        change, diff = diff_file(path, write_log.load_content(write) if write else None, new_contents[path])
        if change:
            yield change, diff


def require_fast_history(org: Organisation, purpose: str) -> None:
    """Raise `UsageError` if there is no git history and too many journals would have to be read.

    Reading the journals takes minutes, too long for a user in front of a screen.
    """
    if not _has_history(org) and len(started_journals(org, MAX_JOURNALS_COMPARED + 1)) > MAX_JOURNALS_COMPARED:
        message = f"{purpose}, more than {MAX_JOURNALS_COMPARED} journals must be read"
        raise UsageError(message, hint="build a history once with `lemming history on`")


def _has_history(org: Organisation) -> bool:
    return (org / FOLDER / "config").exists()
