"""One door each: what has to be looked at before it happens goes through one function, listed here."""

from __future__ import annotations

import ast

from package import TREES, calls, nodes

FUNCTIONS = "lemming.capabilities.toolbox.functions"
TOOL_FILES = "capabilities/toolbox/functions/tool_files.py"
LOADS_FILES_OF_TOOLS = {
    "load_module": {TOOL_FILES, "capabilities/toolbox/functions/function_worker.py"},  # the worker is given their bytes
    "load_file": {TOOL_FILES},
    "load_all": {TOOL_FILES},
    "load_in_worker": {TOOL_FILES},
}


def imported_from(name: str, package: str) -> set[str]:
    """Return the names that a module takes from a package."""
    return {
        alias.name
        for node in nodes(name)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(package)
        for alias in node.names
    }


def test_files_of_tools_are_loaded_by_nobody_else() -> None:
    for name in TREES:
        for word in LOADS_FILES_OF_TOOLS.keys() & imported_from(name, FUNCTIONS):
            assert name in LOADS_FILES_OF_TOOLS[word], f"{name} loads files of tools beside the door"


def test_the_agreement_is_asked_for_before_a_file_of_tools_is_loaded() -> None:
    refresh = next(it for it in nodes(TOOL_FILES) if isinstance(it, ast.FunctionDef) and it.name == "refresh")
    line = {ast.unparse(it.func): it.lineno for it in ast.walk(refresh) if isinstance(it, ast.Call)}
    assert line["self._org.get_cache(WorkspaceTrust).require_sources"] < line["self._load_tools"]
    assert [text for text, _ in calls(TOOL_FILES)].count("self._load_tools") == 1


WRITES_OUTSIDE = {
    "libraries/output_files.py",  # takes secrets out of what it is given
    "kernel/files/file_effects.py",  # files that turns write, below folders that they are granted
    "capabilities/channels/folder_channel.py",  # a channel's own folder; what leaves has been looked at by gates
    "commands/service.py",  # a unit of systemd, for this machine
}
WRITES_PRIVATELY = {
    "libraries/output_files.py", "dashboard/page_server.py", "capabilities/workers/attempts.py",
    "capabilities/workers/running/worker_run.py", "read_model/read_model.py",
}  # fmt: skip
WRITES_ENTRIES = {
    "messages.py",  # what programs write
    "kernel/turn/turn_end.py",  # what a turn has written, once gates have looked at it
    "capabilities/toolbox/reminders.py",  # handed to the turn, whose gates look at it
    "kernel/turn/turn_writes.py",  # which writes anew what interceptors have changed
    "kernel/line.py",  # the whole engine in one file
    "journal_tools/turn_replay.py",  # which compares, and writes nothing
}


def test_what_is_written_for_others_outside_goes_through_one_writer() -> None:
    outside = {
        name
        for name in TREES
        for text, call in calls(name)
        if text in ("fs.write_atomic", "fs.create") and any(word.arg == "is_org" for word in call.keywords)
    }
    private = {name for name in TREES for text, _ in calls(name) if text == "fs.write_private"}
    assert outside == WRITES_OUTSIDE
    assert private == WRITES_PRIVATELY
    assert not {text for text, _ in calls("commands/export.py")} & {"fs.write_atomic", "fs.create"}


def test_entries_are_made_into_files_by_people_and_turns_alone() -> None:
    writers = {name for name in TREES for text, _ in calls(name) if text == "to_file_effect"}
    writers |= {name for name in TREES if "to_file_effect" in imported_from(name, "lemming.kernel.messages")}
    assert writers == WRITES_ENTRIES
