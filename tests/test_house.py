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
from package import FILES, MODULES, PACKAGE, TREES, imports, module_of, nodes, own_imports, room_of

LONGEST_FILE = 400

# From the ground up. A room is a folder, or a module beside the folders; it imports from floors below only.
FLOORS = (
    {"base"},
    {"errors", "plugins"},
    {"files"},
    {"logging_config", "providers"},
    {"org"},
    {"agents", "memory", "processes"},
    {"access", "messages"},
    {"journal"},
    {"llm", "mail", "tools"},
    {"turn"},
    {"tick"},
    {"capabilities"},
    {"exchange", "strategies", "testing"},
    {"history"},
    {"service"},
    {"engine"},
    {"asking", "building", "timeline"},
    {"facts"},
    {"evals", "telemetry"},
    {"dashboard"},
    {"commands"},
    {"cli"},
    {"__main__", "reference"},
)
CAPABILITIES = "capabilities"
# Which capabilities a capability needs. Without a circle, as the test of circles says.
NEEDS = {
    "answers": set[str](),
    "approvals": {"gates", "requests"},
    "background": set(),
    "batches": set(),
    "calendars": {"requests"},
    "channels": set(),
    "cluster": set(),
    "embedded": set(),
    "gates": {"judges", "money", "trust"},
    "judges": {"requests"},
    "mcp": {"background"},
    "money": set(),
    "plans": {"answers", "judges", "requests"},
    "requests": {"money"},
    "sandbox": set(),
    "serving": {"background", "channels", "requests"},
    "skills": set(),
    "store": set(),
    "strategies": set(),
    "toolbox": {"sandbox", "store"},
    "trust": set(),
    "windows": set(),
}
SCREENS = {"commands", "dashboard"}
FLOOR_OF = {room: number for number, floor in enumerate(FLOORS) for room in floor}

SDKS: dict[str, str | set[str]] = {
    "anthropic": "llm/backends/anthropic.py",
    "docstring_parser": "capabilities/toolbox/functions/docstrings.py",
    "cronsim": "base/times/cron.py",
    "distributed": "capabilities/cluster/calls.py",
    "httpx": "llm/backends/ollama.py",
    "httpx2": {
        "llm/backends/openai.py",
        "capabilities/mcp/http.py",
        "capabilities/toolbox/fetching.py",
        "telemetry/post.py",
    },
    "inspect_ai": "evals/inspect.py",
    "jsonschema": "base/json_schema/bounded.py",
    "bs4": "capabilities/toolbox/document_reader.py",
    "mammoth": "capabilities/toolbox/document_reader.py",
    "markdownify": "capabilities/toolbox/document_reader.py",
    "pypdf": "capabilities/toolbox/document_reader.py",
    "mcp": {"capabilities/mcp/session.py", "capabilities/mcp/serve.py"},
    "google": "telemetry/otlp.py",
    "ollama": "llm/backends/ollama.py",
    "opentelemetry": "telemetry/otlp.py",
    "openai": "llm/backends/openai.py",
    "starlette": "dashboard/server.py",
    "structlog": "logging_config.py",
    "tenacity": {"llm/retrying.py", "telemetry/post.py"},
    "yaml": {"base/front_matter.py", "exchange/whole_org.py"},
    "xllamacpp": "capabilities/embedded/local.py",
}

STARTS_PROCESSES = {
    "llm/backends/cli.py", "capabilities/embedded/weights.py", "commands/chaos.py",
    "capabilities/sandbox/run.py", "history/git.py", "history/bisect.py", "service/command.py",
    "capabilities/toolbox/functions/workers.py", "capabilities/toolbox/documents.py",
}  # fmt: skip

# What a module keeps for the whole process, and why no organisation sees another's through it. What is known
# of an organisation's folder is kept by its `Organisation` (lemming/org/organisation.py).
OF_THE_PROCESS = {
    ("files/disk.py", "_in_place"): "the disk that tests put in the place of the real one, for a block",
    ("files/disk.py", "_observers"): "who is told of changes while a block runs; each may name a root",
    ("files/stamps.py", "_exact"): "what was learned of devices, which is so for all that is on them",
    (
        "logging_config.py",
        "_levels",
    ): "what a caller set by setup_logging, which shares but a path with run_tick",
    (
        "base/redaction/__init__.py",
        "_known",
    ): "a secret is kept out of every file, whoever named it",
    ("base/redaction/__init__.py", "_named"): "as _known",
    (
        "capabilities/toolbox/functions/workers.py",
        "_LOADED",
    ): "to load files of tools takes half a second, for each tick",
    ("base/redaction/__init__.py", "_written"): "as _known",
    ("plugins/registry.py", "_registrations"): "a module registers as it is imported, once in a process",
    ("plugins/registry.py", "_installed"): "as _registrations",
    ("plugins/registry.py", "_offered"): "made of _registrations",
    ("llm/backends/background.py", "_current"): "the loop on which the clients of SDKs live",
    ("capabilities/embedded/local.py", "_models"): "loaded weights, hundreds of megabytes that all may use",
}
# Functions that remember what they returned for a path, which is no organisation's.
REMEMBERS_A_PATH = {
    ("history/git.py", "_version_on"): "the programs on a PATH",
}

WRITERS = {"files/fs.py", "files/folder.py", "files/disk.py", "files/temporary.py"}
# What else looks like writing, and why it is none of the organisation's files.
NOT_WRITING = {
    ("llm/backends/cli.py", "os.write"): "the pipe to a program",
    ("llm/backends/cli.py", "tempfile.TemporaryDirectory"): "where a program runs that needs no files",
    ("capabilities/embedded/weights.py", "tempfile.TemporaryDirectory"): "where pip puts what it fetched",
    ("commands/stopping.py", "os.write"): "a line to standard error, from a thread that must not wait",
    ("capabilities/sandbox/launcher.py", "os.mkdir"): "the command's own temporary folder, inside its walls",
    ("capabilities/sandbox/launcher.py", "os.write"): "pipes between a command, its keeper and the engine",
    ("processes/keeper.py", "os.write"): "a pipe to the engine",
    ("capabilities/mcp/launcher.py", "os.write"): "pipes between a server and the engine",
    ("capabilities/toolbox/functions/workers.py", "os.write"): "the pipe to a process that runs functions",
    ("capabilities/sandbox/walls.py", "os.write"): "the kernel's files about a process, in /proc",
    ("files/lock.py", "os.fchmod"): "who may open the lock, which is throw-away",
    ("history/git.py", "os.mkdir"): "a folder for git in a temporary one",
    ("history/git.py", "tempfile.TemporaryDirectory"): "where git looks without changing anything",
    ("history/bisect.py", "tempfile.TemporaryDirectory"): "where an earlier state is tried",
    ("evals/suite.py", "tempfile.TemporaryDirectory"): "where a case runs, in a copy",
    ("commands/rehearse.py", "tempfile.TemporaryDirectory"): "where a fork is that nobody keeps",
    ("dashboard/trying.py", "tempfile.TemporaryDirectory"): "the same, of a resume that is tried on the page",
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
CHANGES_A_VALUE = {
    "add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "remove",
    "setdefault", "update",
}  # fmt: skip
PATH_METHODS = {
    "chmod", "hardlink_to", "lchmod", "link_to", "mkdir", "rename", "rmdir", "symlink_to", "touch", "unlink",
    "write_bytes", "write_text",
}  # fmt: skip

MAY_PRINT = {"commands", "reference"}
PRINTS = {"capabilities/sandbox/launcher.py": "its standard output is its verdict, which the engine reads"}

# A broad `except` stands only at the edges: a turn, a model call, a tool call, a channel, a plugin, a thread,
# the process.
EDGES = {
    "base/json_schema/bounded.py": 1,
    "llm/calls.py": 1,
    "capabilities/background/threads.py": 1,
    "capabilities/channels/edge.py": 1,
    "commands/failures.py": 1,
    "dashboard/live.py": 1,
    "base/deadlines.py": 1,
    "tick/executors/threads.py": 1,
    "service/own_observers.py": 1,  # what somebody's own observer does
    "tick/ahead.py": 1,  # the edge of a thread: raised by who waits for it
    "capabilities/sandbox/launcher.py": 1,
    "plugins/errors.py": 1,
    "capabilities/mcp/session.py": 1,
    "turn/loop.py": 1,
    "plugins/registry.py": 1,
    "providers.py": 1,
    "tools/calls.py": 1,
    "capabilities/gates/checks.py": 1,
    "capabilities/gates/look.py": 1,
    "capabilities/gates/judging.py": 1,
    "tick/edge.py": 1,
    "capabilities/gates/turn_spending.py": 1,
    "capabilities/toolbox/functions/body.py": 1,
    "capabilities/toolbox/functions/files.py": 1,
    "capabilities/toolbox/functions/worker.py": 1,
    "capabilities/toolbox/document_reader.py": 1,
}


def test_every_room_has_a_floor() -> None:
    assert {floor_room(module) for module in MODULES if module} == FLOOR_OF.keys()


def floor_room(module: str) -> str:
    return room_of(module).partition("/")[0]


@pytest.mark.parametrize("types_only", [False, True], ids=["to run", "for types"])
def test_arrows_between_rooms_run_down(types_only: bool) -> None:
    found = {name: not_below(name, types_only=types_only) for name in TREES}
    assert {name: rooms for name, rooms in found.items() if rooms} == {}


def not_below(name: str, *, types_only: bool) -> set[str]:
    """Return the rooms that a file imports from and that are not on a floor below its own."""
    own = floor_room(module_of(name))
    if not own:  # the package itself
        return set()
    used = {floor_room(module) for module in own_imports(name, types_only=types_only)} - {own, "lemming"}
    return {room for room in used if FLOOR_OF[room] >= FLOOR_OF[own]}


def test_only_who_is_above_imports_a_capability_and_it_only_what_it_needs() -> None:
    found: dict[str, set[str]] = {name: set() for name in NEEDS}
    for name in TREES:
        own, _, capability = room_of(module_of(name)).partition("/")
        used = {it for types_only in (False, True) for it in own_imports(name, types_only=types_only)}
        capabilities = {room_of(it).partition("/")[2] for it in used if it.startswith(f"{CAPABILITIES}.")}
        if own == CAPABILITIES and capability:
            found[capability] |= capabilities - {capability}
        elif FLOOR_OF.get(own, len(FLOORS)) < FLOOR_OF[CAPABILITIES]:
            found.setdefault(own, set()).update(capabilities)
    assert {name: used for name, used in found.items() if name in NEEDS} == NEEDS
    assert {name: used for name, used in found.items() if used and name not in NEEDS} == {}


def test_imports_form_no_circle() -> None:
    graph = {module_of(name): own_imports(name) - {module_of(name)} for name in TREES}
    assert len(list(TopologicalSorter(graph).static_order())) >= len(graph)


def test_the_architecture_page_draws_the_same_floors() -> None:
    page = (PACKAGE.parent / "docs" / "architecture.md").read_text()
    drawn = re.findall(r"^ {2}(.+?) {2,}(\d+)\b", page, re.MULTILINE)
    assert {int(number): set(rooms.replace("/", "").split()) for rooms, number in drawn} == dict(
        enumerate(FLOORS)
    )


def test_nobody_imports_the_insides_of_another_module() -> None:
    private = [
        f"{name}: {node.module}.{alias.name}"
        for name in TREES
        for node in nodes(name)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lemming")
        for alias in node.names
        if alias.name.startswith("_") and alias.name != "__version__"
    ]
    assert private == []


@pytest.mark.parametrize("sdk", SDKS)
def test_an_sdk_is_imported_in_one_file_and_only_when_it_is_used(sdk: str) -> None:
    def uses(name: str, **how: bool) -> bool:
        return any(full.partition(".")[0] == sdk for full in imports(name, **how))

    places = SDKS[sdk]
    assert {name for name in TREES if uses(name)} <= ({places} if isinstance(places, str) else places)
    assert [name for name in TREES if uses(name, top_only=True)] == []


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
    found = (node for node in nodes(name) if isinstance(node, ast.Call))
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
    assert found - NOT_WRITING.keys() == set(), "write through lemming/files/fs.py, or say here why not"
    assert NOT_WRITING.keys() - found == set(), "these exceptions are not needed any more"
    assert all(list(writing(name)) for name in WRITERS)


def test_only_fs_uses_the_system_calls_that_write() -> None:
    users = [name for name in TREES if "files.disk" in own_imports(name) and not name.startswith("testing")]
    assert users == ["files/folder.py", "files/fs.py"]


def assigned(node: ast.AST) -> list[ast.expr]:
    """Return what a statement gives a value, or takes one from."""
    if isinstance(node, ast.AnnAssign | ast.AugAssign):
        return [node.target]
    targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else []
    return [each for it in targets for each in (it.elts if isinstance(it, ast.Tuple) else [it])]


def kept_by(name: str) -> Iterator[str]:
    """Yield the variables of a module that its functions change."""
    tree = TREES[name]
    variables = {target.id for node in tree.body for target in assigned(node) if isinstance(target, ast.Name)}
    for function in (node for node in nodes(name) if isinstance(node, ast.FunctionDef)):
        for node in ast.walk(function):
            changed = [it.value for it in assigned(node) if isinstance(it, ast.Subscript)]
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                changed += [node.func.value] if node.func.attr in CHANGES_A_VALUE else []
            found = {it.id for it in changed if isinstance(it, ast.Name)}
            found |= set(node.names) if isinstance(node, ast.Global) else set()
            if found & variables:
                yield from found & variables - local_names(function)


def local_names(function: ast.FunctionDef) -> set[str]:
    """Return the names that a function gives a value itself, which are not the module's."""
    shared = {name for node in ast.walk(function) if isinstance(node, ast.Global) for name in node.names}
    own = {it.id for node in ast.walk(function) for it in assigned(node) if isinstance(it, ast.Name)}
    return own - shared


def test_what_a_module_keeps_for_the_whole_process_has_a_reason() -> None:
    found = {(name, variable) for name in TREES for variable in kept_by(name)}
    assert found - OF_THE_PROCESS.keys() == set(), "keep it in a class: `org.own(...)`, or say here why not"
    assert OF_THE_PROCESS.keys() - found == set(), "these exceptions are not needed any more"


def test_no_function_remembers_what_it_found_at_a_path() -> None:
    found = {
        (name, function.name)
        for name in TREES
        for function in nodes(name)
        if isinstance(function, ast.FunctionDef)
        and any("cache" in ast.unparse(it).rpartition(".")[2] for it in function.decorator_list)
        and any(is_about_a_path(argument) for argument in function.args.args)
    }
    assert found == REMEMBERS_A_PATH.keys()


def is_about_a_path(argument: ast.arg) -> bool:
    kind = ast.unparse(argument.annotation) if argument.annotation else ""
    return argument.arg in ("base", "path", "org", "root", "folder", "file") or "Path" in kind


def test_few_files_start_processes() -> None:
    assert {name for name in TREES if "subprocess" in imports(name)} == STARTS_PROCESSES


def test_nothing_prints_but_the_commands() -> None:
    prints = {name for name in TREES for called, _ in calls(name) if called in ("print", "sys.stdout.write")}
    assert {name for name in prints if room_of(module_of(name)) not in MAY_PRINT} == set(PRINTS)


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


# Where a function searches by a pattern that does not stand there as it is, and whose it is.
SEARCHES = {
    "files/fields.py": "the tables of our own formats",
    "llm/backends/http.py": "our own words, put together",
    "timeline/renaming.py": "a name, escaped",
    "capabilities/toolbox/functions/files.py": "a name, escaped",
}
SEARCHING = {"compile", "findall", "finditer", "fullmatch", "match", "search", "split", "sub", "subn"}


def searches(name: str) -> Iterator[str]:
    """Yield the calls of `re`, inside functions, whose pattern is no literal."""
    for function in (node for node in nodes(name) if isinstance(node, ast.FunctionDef)):
        for node in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
            called = node.func
            of_re = isinstance(called, ast.Attribute) and ast.unparse(called.value) == "re"
            if of_re and called.attr in SEARCHING and not isinstance(node.args[0], ast.Constant):
                yield ast.unparse(node)


def test_a_pattern_of_somebody_elses_is_searched_by_an_engine_with_a_bound() -> None:
    """`lemming.base.patterns` is the door: Python's `re` can take for ever, and holds the interpreter."""
    assert {name for name in TREES if any(searches(name))} == SEARCHES.keys()
    assert {name for name in TREES if "rust-regex" in FILES[name].read_text()} == {
        "base/patterns/of_schemas.py"
    }


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
    return sum(isinstance(node, ast.ExceptHandler) and is_broad(node) for node in nodes(name))


def test_everything_is_caught_at_the_edges_only() -> None:
    assert {name: count for name in TREES if (count := broad_handlers(name))} == EDGES


def test_no_file_has_outgrown_itself() -> None:
    lines = {name: len(path.read_text().splitlines()) for name, path in FILES.items()}
    assert {name: count for name, count in lines.items() if count > LONGEST_FILE} == {}


def test_every_module_says_what_lives_in_it() -> None:
    assert [name for name, tree in TREES.items() if not ast.get_docstring(tree)] == []


def test_helpers_of_the_tests_have_names_of_their_own() -> None:
    tests = Path(__file__).parent
    names = [path.name for path in tests.rglob("*.py") if not path.name.startswith(("test_", "conftest"))]
    assert sorted(name for name in {*names} if names.count(name) > 1) == []
