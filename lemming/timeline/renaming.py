"""An agent gets another name: in its entries, in what others were shown, in files that people write."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from lemming.kernel.agents import survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, CorruptState, DiskError, UsageError
from lemming.kernel.base.jsontext import JsonProblem, as_laid_out, compact, parse
from lemming.kernel.files import fs
from lemming.kernel.files.stamps import is_there
from lemming.kernel.journal.ledger import amend_state, read_state
from lemming.kernel.messages import EntryName, decode_entry, list_outbox, names_in
from lemming.kernel.org.changing import changing_file
from lemming.kernel.org.config import CREDITS_FILE, ORG_FILE
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.plugins.capabilities import capabilities_here
from lemming.service.unfinished_rename import begin_rename, end_rename, is_copied

LIMIT_BYTES = 1 << 20
LOG_LIMIT_BYTES = 1 << 30
LISTS = ("read_outboxes", "read_memories", "create_agent_allowed", "ask", "hand_to")


def rename(base: OrgPath, old: str, new: str) -> list[str]:
    """Give an agent another name everywhere, and return the files of people's that were changed for it.

    What is to be done is written down first: after a kill the same again does the rest. Raises `UsageError`
    where both folders are there, and `DiskError`; where the folder could not be moved, nothing has changed.
    """
    before, after = paths.agent_folder(old), paths.agent_folder(new)
    was_copied = is_copied(base)
    if not was_copied and is_there(f"{base}/{before}") and is_there(f"{base}/{after}"):
        raise UsageError(f'there is an agent "{new}" already', where=after, hint="choose another name")
    # written down first: half a rename leaves entries whose author no folder has any more
    begin_rename(base, old, new, copied=was_copied)
    readers = [reader for reader in survey_agents(base).agents if reader not in (old, new)]
    try:
        with ExitStack() as stack:
            for capability in capabilities_here():
                stack.enter_context(capability.renaming(base, before, after))
            if is_there(f"{base}/{before}"):
                _move_folder(Path(base), old, new, was_copied=was_copied)
    except DiskError:
        if is_there(f"{base}/{before}") and not is_there(f"{base}/{after}"):
            end_rename(base)  # or no tick would run for a rename that has not begun
        raise
    entries_renamed(base, old, new)
    for reader in readers:
        shown_stays_shown(base, reader, old, new)
    for agent in (new, *readers):
        went_out_stays_so(base, agent, old, new)
    files = [f"{after}/resume.json", *map(paths.resume_file, readers), CREDITS_FILE, ORG_FILE]
    changed = [file for file in files if names_replaced(base, file, old, new)]
    end_rename(base)  # last: until then no engine runs here
    return changed


def _move_folder(base: Path, old: str, new: str, *, was_copied: bool) -> None:
    """Move an agent's folder; where the file system cannot (an overlay), copy it and remove the old one.

    The copy is made under a name that is no agent's, and noted once it is whole: at no moment does a kill
    leave two agents, or one without its files.
    """
    before, after, staging = paths.agent_folder(old), paths.agent_folder(new), f"agents/.{new}.copied"
    if not was_copied:
        try:
            fs.move(base, before, after)
        except DiskError as error:
            if getattr(error.__cause__, "errno", 0) != errno.EXDEV:
                raise
        else:
            return
        _remove_existing(base, staging)  # what a kill left of an earlier copy
        try:
            fs.copy_tree(base, before, staging)
            fs.sync_file_system(base)
        except DiskError:
            _remove_existing(base, staging)
            raise
        begin_rename(base, old, new, copied=True)
    if not is_there(f"{base}/{after}"):
        fs.move(base, staging, after)
    fs.remove_tree(base, before)


def _remove_existing(base: Path, folder: str) -> None:
    if (base / folder).is_dir():
        fs.remove_tree(base, folder)


def entries_renamed(base: OrgPath, old: str, new: str) -> None:
    """Write the new name into the entries that lie in the new folder, so that they are its own."""
    for name in list_outbox(base, new):
        written = EntryName(name.tick, name.number, name.id, old)
        try:
            entry = decode_entry(written, fs.read_bytes(base / name.file, LIMIT_BYTES))
        except (ConfigError, FileNotFoundError):
            continue
        fs.publish(Path(base), name.file, replace(entry, agent=new).content)


def shown_stays_shown(base: OrgPath, reader: str, old: str, new: str) -> None:
    """Write into a reader's ledger what it was shown of the agent, whose entries count as others now.

    Else it would be shown all of them again.
    """
    try:
        state = read_state(base, reader)
    except CorruptState:  # it takes no turns, and `lemming validate` names it
        return
    entries = [(names_in(old, [Path(now.file).name])[0], now) for now in list_outbox(base, new)]
    read = state.read.renamed(old, new, entries)
    if read != state.read:
        amend_state(base, reader, replace(state, read=read))


def went_out_stays_so(base: OrgPath, name: str, old: str, new: str) -> None:
    """Write the new name into the log of a channel: else entries of the agent would go out again."""
    file = paths.channel_log(name)
    try:
        raw = fs.read_bytes(base / file, LOG_LIMIT_BYTES)
    except FileNotFoundError:
        return
    named = re.compile(rf'("(?:entry|answers)":"){re.escape(old)}/'.encode())
    renamed = named.sub(rb"\g<1>" + new.encode() + b"/", raw)
    if renamed != raw:
        fs.publish(Path(base), file, renamed)


def names_replaced(base: OrgPath, file: str, old: str, new: str) -> bool:
    """Write the new name where a resume or a settings file names the agent; return whether it did.

    Only the name is replaced in the text, so that the rest of it stays as a person has laid it out.
    """
    is_own = file == paths.resume_file(new)
    return _rewritten(
        base, file, lambda it: _renamed(it, old, new, is_own=is_own), lambda it: _replaced(it, old, new)
    )


def creator_replaced(base: OrgPath, file: str, old: str, new: str) -> bool:
    """Write into the resume of an agent that one created which is gone who had created that one.

    So a family stays one to its limits; return whether it was so.
    """

    def renamed(plain: Any) -> Any:
        is_of = isinstance(plain, dict) and plain.get("created_by") == old
        return {**plain, "created_by": new} if is_of else plain

    return _rewritten(base, file, renamed, lambda text: _creator_in(text, old, new))


def forget_approvals(base: OrgPath, name: str) -> list[str]:
    """Have no gate pass an agent of this name unasked any more, and return the files that said so.

    What a person said for always was of the agent that had the name, and not of the next one.
    """
    resumes = [paths.resume_file(other) for other in survey_agents(base).agents if other != name]
    files = [ORG_FILE, *resumes]
    return [file for file in files if _rewritten(base, file, partial(_without_approvals, name), str)]


def _without_approvals(name: str, plain: Any) -> Any:
    def kept(gate: Any) -> Any:
        if not (isinstance(gate, dict) and isinstance(approved := gate.get("approved"), dict)):
            return gate
        if name not in approved:
            return gate
        left = {key: tools for key, tools in approved.items() if key != name}
        without = {key: value for key, value in gate.items() if key != "approved"}
        return {**without, "approved": left} if left else without

    gates = plain.get("gates") if isinstance(plain, dict) else None
    return {**plain, "gates": [*map(kept, gates)]} if isinstance(gates, list) else plain


def _rewritten(
    base: OrgPath, file: str, renamed: Callable[[Any], Any], replaced: Callable[[str], str]
) -> bool:
    """Write a file as it is wanted, its text as `replaced` gives it if that comes to the same."""
    if not is_there(f"{base}/{file}"):
        return False
    with changing_file(base, file) as opened:
        try:
            plain = parse(opened.raw, allow_bom=True)
        except JsonProblem:
            return False
        wanted = renamed(plain)
        if wanted == plain:
            return False
        text = replaced(opened.raw.decode("utf-8-sig"))
        opened.publish(as_laid_out(text.encode(), wanted))
    return True


def _renamed(plain: Any, old: str, new: str, *, is_own: bool) -> Any:
    if not isinstance(plain, dict):
        return plain
    found = {new if key == old else key: value for key, value in plain.items()}
    if is_own:
        found["name"] = new
    if found.get("created_by") == old:
        found["created_by"] = new
    if isinstance(gates := found.get("gates"), list):
        found["gates"] = [_gate_renamed(gate, old, new) for gate in gates]
    for block in ("permissions", "team"):
        if isinstance(inner := found.get(block), dict):
            found[block] = {key: _in_list(key, value, old, new) for key, value in inner.items()}
    return {key: _in_list(key, value, old, new) for key, value in found.items()}


def _gate_renamed(gate: Any, old: str, new: str) -> Any:
    """Return a gate that asks about the agent as little under its new name as it did under the old one."""
    if not (isinstance(gate, dict) and isinstance(approved := gate.get("approved"), dict)):
        return gate
    return {**gate, "approved": {new if key == old else key: tools for key, tools in approved.items()}}


def _in_list(key: str, value: Any, old: str, new: str) -> Any:
    if key not in LISTS or not isinstance(value, list):
        return value
    return [_instead(name, old, new) for name in value]


def _instead(name: Any, old: str, new: str) -> Any:
    """Return a name with the new one in its place: alone, or before the key of a memory."""
    if isinstance(name, str) and name.startswith(f"{old}/"):
        return f"{new}{name[len(old) :]}"
    if isinstance(name, dict) and name.get("agent") == old:  # a member of a team
        return {**name, "agent": new}
    return new if name == old else name


def _replaced(text: str, old: str, new: str) -> str:
    was, now = compact(old).decode(), compact(new).decode()
    text = re.sub(rf'("name"\s*:\s*){re.escape(was)}', rf"\g<1>{now}", text, count=1)
    text = _creator_in(text, old, new)
    text = re.sub(rf"{re.escape(was)}(\s*:)", rf"{now}\g<1>", text, count=1)
    lists = "|".join(LISTS)
    beginning = f"{was[:-1]}/", f"{now[:-1]}/"
    return re.sub(
        rf'"(?:{lists})"\s*:\s*\[[^\]]*\]',
        lambda found: found[0].replace(was, now).replace(*beginning),
        text,
    )


def _creator_in(text: str, old: str, new: str) -> str:
    was, now = compact(old).decode(), compact(new).decode()
    return re.sub(rf'("created_by"\s*:\s*){re.escape(was)}', rf"\g<1>{now}", text, count=1)
