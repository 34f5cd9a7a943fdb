"""The past: what one tick changed, and how the files differ between two."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from lemming.facts.views.sentences import payload_text, short, text_said
from lemming.facts.views.tick import recorded
from lemming.facts.views.why import writings_of
from lemming.history.git import FOLDER
from lemming.history.read import Changes, FileChange, History
from lemming.kernel.base import paths
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import JsonProblem, parse
from lemming.kernel.journal.file import begun_journals
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.tick.counter import load_tick
from lemming.timeline.record import RecordedTick
from lemming.timeline.unkept import change_of, past_states

DIFF_SHOWN_CHARS = 200_000
JOURNALS_COMPARED = 1000
_SAYS = re.compile(r"diff --git a/\S+ b/(?P<path>agents/[^/\s]+/(?P<kind>outbox|memory)/\S+)\n")
OF_ITS_TURNS = "no history is kept here: this is what the tick's turns wrote, from its journal"


def past(org: OrgPath, *, old: int | None = None, new: int | None = None, agent: str = "") -> dict[str, Any]:
    """Return what tick `new` changed; with `old`, how the files after `new` (default: now) differ from those
    after `old`; with neither, what the newest tick changed. `agent`: only that one's files.

    `remark` says how far it can be believed; of a file `said` is what an entry says, or a memory holds, now.
    Raises `UsageError` for a tick that nothing tells of.
    """
    if agent and not paths.AGENT_NAME.match(agent):
        raise UsageError(f'"{agent[:80]}" is no agent', hint=paths.AGENT_NAME_RULE)
    org = Organisation.at(org)
    next_tick = load_tick(org)
    if old is None:
        new = (begun_journals(org, 1) or [0])[0] if new is None else new
        changes, remark = _of_tick(org, new, agent)
    else:
        changes, remark = _between(org, old, new, agent)
    said = dict(_texts_in_diff(changes.diff))
    return {
        "old": old,
        "new": new,
        "agent": agent,
        "next_tick": next_tick,
        "remark": remark,
        "files": [{**asdict(file), "said": said.get(file.path)} for file in changes.files],
        "diff": changes.diff[:DIFF_SHOWN_CHARS],
        "chars": len(changes.diff),
    }


def _texts_in_diff(diff: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the entries and memories that a diff holds whole, by path: what was said or is remembered now."""
    for part in re.split(r"^(?=diff --git )", diff, flags=re.MULTILINE):
        head = _SAYS.match(part)
        if head is None:
            continue
        lines = part.partition("\n@@")[2].splitlines()[1:]
        try:
            plain = parse("\n".join(line[1:] for line in lines if line[:1] in (" ", "+")))
        except JsonProblem:  # taken away, or too long to be whole
            continue
        if not isinstance(plain, dict):
            continue
        payload = plain.get("payload")
        if head["kind"] == "outbox" and isinstance(payload, dict):
            says = text_said(payload) or payload_text(payload)
            yield head["path"], {"kind": str(plain.get("kind")), "says": short(says)}
        elif head["kind"] == "memory" and "value" in plain:
            yield head["path"], {"kind": "memory", "says": f"{plain.get('key')}: {short(plain['value'])}"}


def _of_tick(org: Organisation, tick: int, agent: str) -> tuple[Changes, str]:
    if _has_history(org):
        history = History(org.base)
        commit = history.commit_of(tick)
        return (history.changes_of(commit, agent=agent) if commit else Changes([], "")), ""
    below = f"{paths.agent_folder(agent)}/" if agent else ""
    told = [it for it in _by_turns(org, recorded(org, tick)) if it[0].path.startswith(below)]
    return Changes([file for file, _ in told], "".join(diff for _, diff in told)), OF_ITS_TURNS


def _by_turns(org: Organisation, record: RecordedTick) -> Iterator[tuple[FileChange, str]]:
    """Yield the files that a tick's turns wrote or took away, by path, each with the text of the change."""
    writings = writings_of(org)
    after: dict[str, bytes | None] = dict.fromkeys(record.expired)
    first: dict[str, int] = {}
    for turn in record.turns:
        after |= dict.fromkeys(turn.report.removed if turn.report else ())
        after |= {place: effect.content for place, effect in turn.writes.items()}
        first = {**dict.fromkeys((*turn.writes, *record.expired), turn.place), **first}
    for path in sorted(after):
        write = writings.last_write(path, before=(record.tick, first.get(path, 0)))
        change, diff = change_of(path, writings.content(write) if write else None, after[path])
        if change:
            yield change, diff


def _between(org: Organisation, old: int, new: int | None, agent: str) -> tuple[Changes, str]:
    require_past_at_hand(org, "to compare two ticks")
    states = past_states(org.base)
    changes = states.changes_between(str(old), "now" if new is None else str(new), agent=agent)
    return changes, states.remark


def require_past_at_hand(org: Organisation, purpose: str) -> None:
    """Raise `UsageError` where there is no history, and the past would have to be read out of many journals.

    That takes minutes, and somebody waits before a screen.
    """
    if not _has_history(org) and len(begun_journals(org, JOURNALS_COMPARED + 1)) > JOURNALS_COMPARED:
        message = f"{purpose}, more than {JOURNALS_COMPARED} journals would have to be read"
        raise UsageError(message, hint="`lemming history on` makes a history of them, once")


def _has_history(org: Organisation) -> bool:
    return (org / FOLDER / "config").exists()
