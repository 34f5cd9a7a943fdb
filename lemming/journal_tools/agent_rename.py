"""References to an agent by name: renames them in all files, and removes references to a removed agent.

Entries, ledgers and logs of other agents, and hand-written files name an agent.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from lemming.kernel.agents import RESUME_LIMIT_BYTES, list_agent_folders, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, CorruptState, DiskError, UsageError
from lemming.kernel.base.jsontext import JsonProblem, dump_compact, parse
from lemming.kernel.files import fs
from lemming.kernel.files.field_types import Json
from lemming.kernel.files.stat_cache import path_exists
from lemming.kernel.journal.ledger import amend_state, read_state
from lemming.kernel.messages import EntryName, decode_entry, list_outbox, parse_file_names
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.plugins.capability_loader import load_installed
from lemming.libraries.settings_edits import edit_file, preserve_layout
from lemming.operations.pending_rename import begin_rename, end_rename, has_copied_folder

FILE_LIMIT_BYTES = 1 << 20
LOG_LIMIT_BYTES = 1 << 30
AGENT_LIST_KEYS = ("read_outboxes", "read_memories", "create_agent_allowed", "ask", "hand_to")


def rename_agent(base: OrgPath, old: str, new: str) -> list[str]:
    """Rename an agent everywhere, and return the changed hand-written files.

    The intent is written down first: after a crash, the same call completes the rename. Raises `UsageError`
    if both folders exist, and `DiskError`; if the folder could not be moved, nothing has changed.
    """
    old_folder, new_folder = paths.agent_folder(old), paths.agent_folder(new)
    was_copied = has_copied_folder(base)
    if not was_copied and path_exists(f"{base}/{old_folder}") and path_exists(f"{base}/{new_folder}"):
        raise UsageError(f'agent "{new}" already exists', where=new_folder, hint="choose another name")
    # recorded first: half a rename leaves entries by an author without a folder
    begin_rename(base, old, new, copied=was_copied)
    readers = [reader for reader in survey_agents(base).agents if reader not in (old, new)]
    try:
        with ExitStack() as stack:
            for move_files in load_installed("folder_moves"):
                stack.enter_context(move_files(base, old_folder, new_folder))
            if path_exists(f"{base}/{old_folder}"):
                _move_folder(Path(base), old, new, was_copied=was_copied)
    except DiskError:
        if path_exists(f"{base}/{old_folder}") and not path_exists(f"{base}/{new_folder}"):
            end_rename(base)  # or no tick would run for a rename that has not begun
        raise
    _rename_entries(base, old, new)
    for reader in readers:
        _carry_over_shown_entries(base, reader, old, new)
    for agent in (new, *readers):
        _rename_in_channel_log(base, agent, old, new)
    files = [f"{new_folder}/resume.json", *map(paths.resume_file, readers), paths.CREDITS_FILE, paths.ORG_FILE]
    rename, replace_text = partial(_rename_in_json, old, new), partial(_replace_in_text, old, new)
    changed = [file for file in files if _rewrite_file(base, file, rename, replace_text)]
    end_rename(base)  # last: until then no engine runs here
    return changed


def _move_folder(base: Path, old: str, new: str, *, was_copied: bool) -> None:
    """Move an agent's folder, or copy and remove the folder on a file system without moves (an overlay).

    The copy gets a name invalid for agents and is noted once complete: at no moment can a crash leave two
    agents, or an agent without files.
    """
    old_folder, new_folder, staging = (paths.agent_folder(old), paths.agent_folder(new), f"agents/.{new}.copied")
    if not was_copied:
        try:
            fs.move(base, old_folder, new_folder)
        except DiskError as error:
            if getattr(error.__cause__, "errno", 0) != errno.EXDEV:
                raise
        else:
            return
        _remove_existing(base, staging)  # the rest of an earlier, killed copy
        try:
            fs.copy_tree(base, old_folder, staging)
            fs.sync_file_system(base)
        except DiskError:
            _remove_existing(base, staging)
            raise
        begin_rename(base, old, new, copied=True)
    if not path_exists(f"{base}/{new_folder}"):
        fs.move(base, staging, new_folder)
    fs.remove_tree(base, old_folder)


def _remove_existing(base: Path, folder: str) -> None:
    if (base / folder).is_dir():
        fs.remove_tree(base, folder)


def _rename_entries(base: OrgPath, old: str, new: str) -> None:
    """Write the new name into the entries in the new folder, so that the entries belong to the agent."""
    for name in list_outbox(base, new):
        old_name = EntryName(name.tick, name.number, name.id, old)
        try:
            entry = decode_entry(old_name, fs.read_bytes(base / name.file, FILE_LIMIT_BYTES))
        except (ConfigError, FileNotFoundError):
            continue
        fs.write_atomic(Path(base), name.file, replace(entry, agent=new).content)


def _carry_over_shown_entries(base: OrgPath, reader: str, old: str, new: str) -> None:
    """Keep entries of the renamed agent marked as read in a reader's ledger.

    Otherwise the reader would get all of these entries again, because their author counts as new.
    """
    try:
        state = read_state(base, reader)
    except CorruptState:  # it takes no turns, and `lemming validate` names it
        return
    entries = [(parse_file_names(old, [Path(new_name.file).name])[0], new_name) for new_name in list_outbox(base, new)]
    read = state.read.rename_author(old, new, entries)
    if read != state.read:
        amend_state(base, reader, replace(state, read=read))


def _rename_in_channel_log(base: OrgPath, name: str, old: str, new: str) -> None:
    """Write the new name into the log of a channel; otherwise delivered entries would be delivered again."""
    file = paths.channel_log(name)
    try:
        raw = fs.read_bytes(base / file, LOG_LIMIT_BYTES)
    except FileNotFoundError:
        return
    pattern = re.compile(rf'("(?:entry|answers)":"){re.escape(old)}/'.encode())
    new_content = pattern.sub(rb"\g<1>" + new.encode() + b"/", raw)
    if new_content != raw:
        fs.write_atomic(Path(base), file, new_content)


def replace_creator(base: OrgPath, file: str, old: str, new: str) -> bool:
    """Replace a removed creator in a resume by the creator's own creator, and return True if the file changed.

    This keeps families of agents together for their spending limits.
    """

    def rename_creator(content: Any) -> Any:
        is_created_by_old = isinstance(content, dict) and content.get("created_by") == old
        return {**content, "created_by": new} if is_created_by_old else content

    return _rewrite_file(base, file, rename_creator, partial(_replace_creator, old, new))


def remove_standing_approvals(base: OrgPath, name: str) -> list[str]:
    """Remove the standing approvals of an agent from all gates, and return the changed files.

    A person granted standing approvals to the old agent, not to the next agent with the same name.
    """
    resumes = [paths.resume_file(other) for other in survey_agents(base).agents if other != name]
    files = [paths.ORG_FILE, *resumes]
    return [file for file in files if _rewrite_file(base, file, partial(_remove_approvals, name), str)]


def _remove_approvals(name: str, content: Any) -> Any:
    return _change_approvals(content, lambda approved: {key: approved[key] for key in approved if key != name})


def _change_approvals(content: Any, change: Callable[[Json], Json]) -> Any:
    """Return settings or a resume with the standing approvals of its gates changed; no approvals leave no key."""

    def change_gate(gate: Any) -> Any:
        if not (isinstance(gate, dict) and isinstance(approved := gate.get("approved"), dict)):
            return gate
        if (changed := change(approved)) or not approved:
            return {**gate, "approved": changed}
        return {key: value for key, value in gate.items() if key != "approved"}

    gates = content.get("gates") if isinstance(content, dict) else None
    return {**content, "gates": [*map(change_gate, gates)]} if isinstance(gates, list) else content


def _rewrite_file(
    base: OrgPath, file: str, transform: Callable[[Any], Any], replace_text: Callable[[str], str]
) -> bool:
    """Rewrite a file with its new JSON content, keeping the layout of `replace_text` if its JSON is equal."""
    if not path_exists(f"{base}/{file}"):
        return False
    with edit_file(base, file) as change:
        try:
            old_content = parse(change.raw, allow_bom=True)
        except JsonProblem:
            return False
        new_content = transform(old_content)
        if new_content == old_content:
            return False
        text = replace_text(change.raw.decode("utf-8-sig"))
        change.publish(preserve_layout(text.encode(), new_content))
    return True


def _rename_in_json(old: str, new: str, content: Any) -> Any:
    """Return settings, grants of credits or a resume with the new name of an agent."""

    def rename_keys(values: Json) -> Json:
        return {new if key == old else key: value for key, value in values.items()}

    def rename_in_lists(values: Json) -> Json:
        lists = {key: value for key, value in values.items() if key in AGENT_LIST_KEYS and isinstance(value, list)}
        return {**values, **{key: [_substitute_name(name, old, new) for name in lists[key]] for key in lists}}

    if not isinstance(content, dict):
        return content
    renamed = rename_in_lists(_change_approvals(rename_keys(content), rename_keys))
    for key in ("name", "created_by"):
        if renamed.get(key) == old:
            renamed[key] = new
    for block in ("permissions", "team"):
        if isinstance(inner := renamed.get(block), dict):
            renamed[block] = rename_in_lists(inner)
    return renamed


def _substitute_name(name: Any, old: str, new: str) -> Any:
    """Return a name with the new name substituted, alone or before a memory key."""
    if isinstance(name, str) and name.startswith(f"{old}/"):
        return f"{new}{name[len(old) :]}"
    if isinstance(name, dict) and name.get("agent") == old:  # a member of a team
        return {**name, "agent": new}
    return new if name == old else name


def _replace_in_text(old: str, new: str, text: str) -> str:
    old_json, new_json = dump_compact(old).decode(), dump_compact(new).decode()
    text = re.sub(rf'("name"\s*:\s*){re.escape(old_json)}', rf"\g<1>{new_json}", text, count=1)
    text = _replace_creator(old, new, text)
    text = re.sub(rf"{re.escape(old_json)}(\s*:)", rf"{new_json}\g<1>", text, count=1)
    lists = "|".join(AGENT_LIST_KEYS)
    beginning = f"{old_json[:-1]}/", f"{new_json[:-1]}/"
    return re.sub(
        rf'"(?:{lists})"\s*:\s*\[[^\]]*\]', lambda match: match[0].replace(old_json, new_json).replace(*beginning), text
    )


def _replace_creator(old: str, new: str, text: str) -> str:
    old_json, new_json = dump_compact(old).decode(), dump_compact(new).decode()
    return re.sub(rf'("created_by"\s*:\s*){re.escape(old_json)}', rf"\g<1>{new_json}", text, count=1)


_NAME_LISTS = (("permissions", "read_outboxes"), ("permissions", "read_memories"), ("team", "ask"), ("team", "hand_to"))


def find_referring_agents(base: OrgPath, name: str) -> dict[str, list[str]]:
    """Return the agents whose resumes name an agent in a list, each with the keys of the lists."""
    keys_by_agent: dict[str, list[str]] = {}
    for other in filter(paths.AGENT_NAME.match, list_agent_folders(base)):
        try:
            resume = parse(fs.read_bytes(base / paths.resume_file(other), RESUME_LIMIT_BYTES), allow_bom=True)
        except (JsonProblem, OSError):  # `validate` reports the error
            continue
        lists = _find_name_lists(resume)
        keys = [f"{part}.{key}" for part, key, items in lists if any(_is_reference(item, name) for item in items)]
        if other != name and keys:
            keys_by_agent[other] = keys
    return keys_by_agent


def remove_references(base: OrgPath, other: str, name: str) -> str:
    """Remove an agent's name from the lists of another resume. Return the changed file, or "" for no change."""
    file = paths.resume_file(other)
    changed = _rewrite_file(base, file, partial(_remove_from_lists, name), partial(_remove_from_text, name))
    return file if changed else ""


def _find_name_lists(value: Any) -> Iterator[tuple[str, str, list[Any]]]:
    resume: Json = value if isinstance(value, dict) else {}
    for part, key in _NAME_LISTS:
        if isinstance(block := resume.get(part), dict) and isinstance(items := block.get(key), list):
            yield part, key, items


def _is_reference(item: Any, name: str) -> bool:
    if isinstance(item, Mapping):
        return item.get("agent") == name
    return isinstance(item, str) and item.partition("/")[0] == name  # a memory is NAME/KEY


def _remove_from_lists(name: str, resume: Any) -> Any:
    changed = resume
    for part, key, items in _find_name_lists(resume):
        remaining = [item for item in items if not _is_reference(item, name)]
        changed = {**changed, part: {**changed[part], key: remaining}}
    return changed


def _remove_from_text(name: str, text: str) -> str:
    """Remove a name from the lists in a resume's text, for simple list syntax only."""
    quoted_name = re.escape(dump_compact(name).decode())
    keys = "|".join(key for _, key in _NAME_LISTS)
    return re.sub(
        rf'"(?:{keys})"\s*:\s*\[[^\]]*\]',
        lambda match: re.sub(rf"{quoted_name}\s*,\s*|(?:,\s*)?{quoted_name}", "", match[0]),
        text,
    )
