"""The house holds: floors, one file for each SDK, one module that writes, no file that has outgrown itself.

Floors: docs/architecture.md. The code is read, not run; a new module without a floor fails here.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "lemming"
LONGEST_FILE = 400

WORDS, DISK, STORES, REACH, TURN, TICK, VIEWS = range(1, 8)
FLOORS = {
    # 1 words: pure, no disk, no time of day
    "arguments": WORDS, "clock": WORDS, "contract": WORDS, "errors": WORDS, "fitting": WORDS,
    "jsontext": WORDS, "kinds": WORDS, "paths": WORDS, "plugin_errors": WORDS, "quoting": WORDS,
    "redaction": WORDS,
    "report": WORDS, "schedule": WORDS,
    "checks": WORDS, "records": WORDS,
    # 2 disk: the only code that writes files
    "changes": DISK, "descriptors": DISK, "disk": DISK, "documents": DISK, "effects": DISK, "fs": DISK,
    "listings": DISK, "locking": DISK, "modes": DISK, "openat2": DISK, "readings": DISK, "refusals": DISK,
    "temporary": DISK,
    # 3 stores
    "agents": STORES, "config": STORES, "inbox": STORES, "journal": STORES, "ledger": STORES,
    "logging_config": STORES, "mailroom": STORES, "memory": STORES, "messages": STORES, "misplaced": STORES,
    "not_done": STORES,
    "outboxes": STORES, "readmark": STORES, "sealing": STORES, "view": STORES,
    "permitted": TICK,
    "starts": STORES,
    # 4 reach: the outside world
    "backends": REACH, "batch_api": REACH, "batch_post": REACH, "batching": REACH, "calls": REACH,
    "circuit": REACH, "deadlines": REACH, "git_files": REACH, "guards": REACH, "pacing": REACH,
    "plugins": REACH, "providers": REACH, "repository": REACH, "retrying": REACH,
    "toolbox": REACH, "tools": REACH, "trust": REACH,
    # 5 the turn
    "credits": TURN, "plan": TURN, "prompt": TURN, "turn": TURN, "waiting": TURN,
    "watching": TURN,
    # 6 the tick
    "commits": TICK, "counter": TICK, "engine": TICK, "executors": TICK, "lost_turns": TICK, "quiet": TICK,
    "recorder": TICK,
    "retention": TICK, "runtime": TICK, "seating": TICK, "snapshot": TICK, "tape": TICK, "tick": TICK,
    "waking": TICK,
    # 7 views: nothing below imports them
    "__main__": VIEWS, "cli": VIEWS, "commands": VIEWS, "dashboard": VIEWS, "reference": VIEWS,
    "schemas": VIEWS, "telemetry": VIEWS, "testing": VIEWS, "timeline": VIEWS,
}  # fmt: skip

SDKS = {
    "anthropic": "backends/anthropic.py",
    "distributed": "executors/dask.py",
    "httpx": "backends/ollama.py",
    "mcp": "toolbox/mcp.py",
    "ollama": "backends/ollama.py",
    "openai": "backends/openai.py",
    "structlog": "logging_config.py",
    "tenacity": "retrying.py",
    "xllamacpp": "backends/local.py",
}
IMPORTED_AT_THE_TOP = {"tenacity"}  # light, and its file is imported when a model is first asked

STARTS_PROCESSES = {
    "backends/cli.py", "backends/weights.py", "commands/chaos.py", "guards/sandbox.py", "repository.py",
    "timeline/bisect.py",
}  # fmt: skip

WRITERS = {"fs.py", "disk.py", "temporary.py"}
# What else looks like writing, and why it is none of the organisation's files.
NOT_WRITING = {
    ("backends/cli.py", "os.write"): "the pipe to a program",
    ("backends/weights.py", "tempfile.TemporaryDirectory"): "where pip puts what it fetched",
    ("commands/stopping.py", "os.write"): "a line to standard error, from a thread that must not wait",
    ("guards/confine.py", "os.mkdir"): "the command's own temporary folder, inside its walls",
    ("guards/confine.py", "os.write"): "pipes between a command, its keeper and the engine",
    ("guards/keeper.py", "os.write"): "a pipe to the engine",
    ("guards/walls.py", "os.write"): "the kernel's files about a process, in /proc",
    ("locking.py", "os.fchmod"): "who may open the lock, which is throw-away",
    ("repository.py", "os.mkdir"): "a folder for git in a temporary one",
    ("repository.py", "tempfile.TemporaryDirectory"): "where git looks without changing anything",
    ("timeline/bisect.py", "tempfile.TemporaryDirectory"): "where an earlier state is tried",
}
CHANGES_THE_DISK = {
    "os": {
        "chmod", "chown", "copy_file_range", "fchmod", "fchown", "fdatasync", "fsync", "ftruncate", "lchown",
        "link", "makedirs", "mkdir", "mkfifo", "mknod", "posix_fallocate", "pwrite", "remove", "removedirs",
        "removexattr", "rename", "renames", "replace", "rmdir", "sendfile", "setxattr", "symlink", "sync",
        "truncate", "unlink", "utime", "write", "writev",
    },
    "shutil": {"chown", "copy", "copy2", "copyfile", "copymode", "copystat", "copytree", "make_archive",
               "move", "rmtree", "unpack_archive"},
    "tempfile": {"NamedTemporaryFile", "SpooledTemporaryFile", "TemporaryDirectory", "TemporaryFile",
                 "mkdtemp", "mkstemp"},
}  # fmt: skip
PATH_METHODS = {
    "chmod", "hardlink_to", "lchmod", "link_to", "mkdir", "rename", "rmdir", "symlink_to", "touch", "unlink",
    "write_bytes", "write_text",
}  # fmt: skip

PRINTS = {"guards/confine.py": "its standard output is its verdict, which the engine reads"}

# A broad `except` stands only at the edges: a model call, a tool call, a plugin, the process.
EDGES = {
    "calls.py": 1,
    "commands/failures.py": 1,
    "deadlines.py": 1,
    "executors/threads.py": 1,
    "guards/confine.py": 1,
    "plugin_errors.py": 1,
    "plugins.py": 1,
    "providers.py": 1,
    "tools.py": 1,
}

FILES = {str(path.relative_to(PACKAGE)): path for path in sorted(PACKAGE.rglob("*.py"))}
TREES = {name: ast.parse(path.read_text()) for name, path in FILES.items() if "templates" not in path.parts}


def module_of(name: str) -> str:
    """Return `a.b` for `a/b.py`, `a` for `a/__init__.py`, and an empty string for the package itself."""
    return name.removesuffix(".py").removesuffix("__init__").strip("/").replace("/", ".")


MODULES = {module_of(name) for name in TREES}


def floor_of(module: str) -> int:
    """Return a module's floor; the package itself, which holds the version only, is words."""
    return WORDS if module in ("", "lemming") else FLOORS[module.partition(".")[0]]


@cache
def for_types_only(tree: ast.Module) -> set[ast.AST]:
    """Return all that stands under `if TYPE_CHECKING:`."""
    blocks = (
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
    )
    return {inner for block in blocks for inner in ast.walk(block)}


@cache
def imports(name: str, *, types_only: bool = False, top_only: bool = False) -> frozenset[str]:
    """Return what a file imports, as full names of modules."""
    tree = TREES[name]
    typing_only = for_types_only(tree)
    nodes = tree.body if top_only else ast.walk(tree)
    return frozenset(
        full for node in nodes if (node in typing_only) == types_only for full in imported_by(node)
    )


def imported_by(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.module is not None, "imports are absolute"
        for alias in node.names:
            full = f"{node.module}.{alias.name}"
            yield full if full.removeprefix("lemming.") in MODULES else node.module


def own_imports(name: str, *, types_only: bool = False, top_only: bool = False) -> set[str]:
    """Return the package's own modules that a file imports, without the package's name in front."""
    found = imports(name, types_only=types_only, top_only=top_only)
    return {full.removeprefix("lemming.") for full in found if full.startswith("lemming.")}


def test_every_module_has_a_floor() -> None:
    assert [module for module in MODULES if module and module.partition(".")[0] not in FLOORS] == []


def test_a_module_imports_only_lower_floors_or_its_own() -> None:
    assert {name: above for name in TREES if (above := imported_from_above(name, types_only=False))} == {}


def test_imports_for_types_point_no_higher_either() -> None:
    assert {name: above for name in TREES if (above := imported_from_above(name, types_only=True))} == {}


def imported_from_above(name: str, *, types_only: bool) -> set[str]:
    module = module_of(name)
    return {used for used in own_imports(name, types_only=types_only) if floor_of(used) > floor_of(module)}


def test_top_level_imports_form_no_circle() -> None:
    graph = {module_of(name): own_imports(name, top_only=True) for name in TREES}
    assert len(list(TopologicalSorter(graph).static_order())) >= len(graph)


def test_nobody_imports_the_insides_of_another_module() -> None:
    private = [
        f"{name}: {node.module}.{alias.name}"
        for name, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lemming")
        for alias in node.names
        if alias.name.startswith("_") and alias.name != "__version__"
    ]
    assert private == []


@pytest.mark.parametrize("sdk", SDKS)
def test_an_sdk_is_imported_in_one_file_and_only_when_it_is_used(sdk: str) -> None:
    def uses(name: str, **how: bool) -> bool:
        return any(full.partition(".")[0] == sdk for full in imports(name, **how))

    assert [name for name in TREES if uses(name)] in ([SDKS[sdk]], [])
    at_the_top = [name for name in TREES if uses(name, top_only=True)]
    assert at_the_top == ([SDKS[sdk]] if sdk in IMPORTED_AT_THE_TOP else [])


def test_the_command_line_and_the_engine_import_no_sdk() -> None:
    code = "import lemming.cli, lemming.engine, sys; print(*sys.modules)"
    environment = {"PYTHONPATH": str(PACKAGE.parent)}
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True
    )
    assert set(SDKS) & set(ran.stdout.split()) == set()


@cache
def calls(name: str) -> tuple[tuple[str, ast.Call], ...]:
    """Return every call in a file with the text of what is called."""
    found = (node for node in ast.walk(TREES[name]) if isinstance(node, ast.Call))
    return tuple((ast.unparse(node.func), node) for node in found)


def opens_for_writing(called: str, node: ast.Call) -> bool:
    """Whether the call is an `open` with a mode that changes the file, or that cannot be told from here."""
    if called == "open":
        modes = [*node.args[1:2], *(word.value for word in node.keywords if word.arg == "mode")]
        return any(not isinstance(mode, ast.Constant) or is_writing_mode(mode.value) for mode in modes)
    is_method = called.endswith(".open") and called != "os.open"
    return is_method and any(
        isinstance(arg, ast.Constant) and is_writing_mode(arg.value) for arg in node.args
    )


def is_writing_mode(mode: object) -> bool:
    return re.fullmatch(r"[rwaxbt+]*[wax+][rwaxbt+]*", str(mode)) is not None


def writing(name: str) -> Iterator[str]:
    """Yield what in a file looks like a change of the disk."""
    for called, node in calls(name):
        owner, _, method = called.rpartition(".")
        of_a_path = method in PATH_METHODS and owner not in ("", "os")
        if method in CHANGES_THE_DISK.get(owner, ()) or of_a_path or opens_for_writing(called, node):
            yield called


def test_only_fs_changes_the_disk() -> None:
    found = {(name, called) for name in TREES for called in writing(name) if name not in WRITERS}
    assert found - NOT_WRITING.keys() == set(), "write through lemming/fs.py, or say here why not"
    assert NOT_WRITING.keys() - found == set(), "these exceptions are not needed any more"
    assert all(list(writing(name)) for name in WRITERS)


def test_only_fs_uses_the_system_calls_that_write() -> None:
    assert [name for name in TREES if "disk" in own_imports(name) and floor_of(module_of(name)) != VIEWS] == [
        "fs.py"
    ]


def test_few_files_start_processes() -> None:
    assert {name for name in TREES if "subprocess" in imports(name)} == STARTS_PROCESSES


def test_nothing_prints_but_the_commands() -> None:
    prints = {name for name in TREES for called, _ in calls(name) if called in ("print", "sys.stdout.write")}
    assert {name for name in prints if floor_of(module_of(name)) != VIEWS} == set(PRINTS)


def test_commands_print_through_the_screen_only() -> None:
    """There, whatever could steer a terminal is taken out of every text."""
    raw = {"click.echo", "click.secho", "pprint", "pprint.pprint", "print", "typer.echo", "typer.secho"}
    found = {
        (name, called)
        for name in TREES
        if module_of(name).startswith(("cli", "commands")) and name != "commands/screen.py"
        for called, _ in calls(name)
        if called in raw
        or called.startswith(("traceback.print", "sys.stdout.w", "sys.stderr.w", "sys.__", "logging."))
        or (called.endswith((".write", ".writelines")) and called != "os.write")
    }
    assert found == set()


def is_broad(handler: ast.ExceptHandler) -> bool:
    """Whether a handler catches everything and does not raise it on."""
    caught = (
        {node.id for node in ast.walk(handler.type) if isinstance(node, ast.Name)}
        if handler.type
        else {"BaseException"}
    )
    last = handler.body[-1]
    raises_on = isinstance(last, ast.Raise) and last.exc is None
    return bool(caught & {"Exception", "BaseException"}) and not raises_on


def broad_handlers(name: str) -> int:
    return sum(isinstance(node, ast.ExceptHandler) and is_broad(node) for node in ast.walk(TREES[name]))


def test_everything_is_caught_at_the_edges_only() -> None:
    assert {name: count for name in TREES if (count := broad_handlers(name))} == EDGES


def test_no_file_has_outgrown_itself() -> None:
    lines = {name: len(path.read_text().splitlines()) for name, path in FILES.items()}
    assert {name: count for name, count in lines.items() if count > LONGEST_FILE} == {}


def test_every_module_says_what_lives_in_it() -> None:
    assert [name for name, tree in TREES.items() if not ast.get_docstring(tree)] == []
