"""The house holds: floors, one file for each SDK, one module that writes, no file that has outgrown itself.

Floors: docs/architecture.md. The code is read, not run; a new module without a floor fails here.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest
from package import FILES, MODULES, PACKAGE, TREES, calls, imports, module_of, nodes, own_imports, room_of

from lemming.kernel.plugins.capability_table import provided

LONGEST_FILE = 400
LONG_FILES = {
    "kernel/line.py": 600,  # the whole engine in one file, which is what it shows
    "kernel/journal/journal_records.py": 430,  # one table: the classes of all records
    "kernel/plugins/shipped_capabilities.py": 430,  # one table: the capabilities that ship
}
LONG_TESTS = {
    "test_house.py": "while files still import capabilities by name, it lists them",
    "conformance/tiny_engine.py": "a second engine in one file, which is what it shows",
    "crash/corpus.py": "one table: what each kind of turn writes",
}

# From the ground up. A room is a folder, or a module beside the folders; it imports from floors below only.
DOORS = {"agents", "errors", "ext", "logging_config", "memory", "messages", "providers", "tools"}
FLOORS = (
    {"kernel"},
    {"libraries"},
    {"read_model"} | DOORS,
    {"obligations"},
    {"import_export", "git_history", "strategies", "testing"},
    {"builder", "operations"},
    {"engine"},
    {"client", "journal_tools"},
    {"queries"},
    {"evals", "telemetry"},
    {"dashboard"},
    {"commands"},
    {"capabilities"},
    {"cli"},
    {"__main__"},
)
# The same within the kernel.
KERNEL_FLOORS = (
    {"base"},
    {"plugins"},
    {"files"},
    {"logging_config", "providers"},
    {"org"},
    {"agents", "memory"},
    {"access", "messages"},
    {"journal"},
    {"llm", "inboxes", "tools"},
    {"obligations", "tick_context"},
    {"turn", "plain_organisation"},
    {"tick"},
    {"line"},
)
CAPABILITIES = "capabilities"
# Which capabilities a capability needs. Without a circle, as the test of circles says.
NEEDS: dict[str, set[str]] = {
    "output_schemas": set(),
    "approvals": {"gates", "requests"},
    "attachments": {"toolbox"},
    "batches": {"hosted_models"},
    "calendars": set(),
    "workers": set(),
    "channels": {"program_models"},
    "cluster": set(),
    "cron": set(),
    "embedded_models": set(),
    "gates": {"judges", "pricing", "trust"},
    "goals": {"judges", "requests"},
    "hosted_models": set(),
    "judges": {"requests"},
    "mcp": set(),
    "pricing": set(),
    "plans": {"judges", "output_schemas"},
    "program_models": set(),
    "requests": set(),
    "scripted_models": set(),
    "skills": set(),
    "strategies": set(),
    "toolbox": set(),
    "trust": set(),
    "context_window": set(),
}
FLOOR_OF = {room: number for number, floor in enumerate(FLOORS) for room in floor} | {
    f"kernel/{room}": number for number, floor in enumerate(KERNEL_FLOORS) for room in floor
}

SDKS: dict[str, str | set[str]] = {
    "acp": "capabilities/workers/harnesses/acp_reader.py",
    "aiohttp": "capabilities/hosted_models/sdk_common.py",
    "anthropic": "capabilities/hosted_models/anthropic_provider.py",
    "docstring_parser": "capabilities/toolbox/functions/signature.py",
    "cronsim": "libraries/cron_expressions.py",
    "distributed": "capabilities/cluster/cluster_calls.py",
    "httpx": "capabilities/hosted_models/ollama_provider.py",
    "httpx2": {
        "capabilities/channels/http_channel.py",
        "capabilities/embedded_models/model_weights.py",
        "capabilities/workers/running/model_gateway.py",
        "capabilities/hosted_models/sdk_common.py",
        "capabilities/mcp/mcp_session.py",
        "capabilities/toolbox/http_tools.py",
        "telemetry/otlp.py",
    },
    "huggingface_hub": "capabilities/embedded_models/model_weights.py",
    "jsonschema": "kernel/base/json_schema/bounded_validator.py",
    "bs4": "capabilities/toolbox/document_reader.py",
    "mammoth": "capabilities/toolbox/document_reader.py",
    "markdownify": "capabilities/toolbox/document_reader.py",
    "pypdf": "capabilities/toolbox/document_reader.py",
    "prometheus_client": "telemetry/metrics.py",
    "re2": "libraries/conditions/regex_search.py",
    "mcp": {"capabilities/mcp/mcp_session.py", "capabilities/mcp/mcp_server.py"},
    "google": "telemetry/otlp.py",
    "ollama": "capabilities/hosted_models/ollama_provider.py",
    "opentelemetry": "telemetry/otlp.py",
    "openai": "capabilities/hosted_models/openai_provider.py",
    "starlette": {"dashboard/page_server.py", "capabilities/channels/http_api.py", "operations/systemd_notify.py"},
    "structlog": "logging_config.py",
    "uvicorn": "libraries/concurrency/http_server.py",
    "tenacity": {
        "capabilities/toolbox/functions/function_call.py",
        "kernel/llm/retrying_provider.py",
        "telemetry/otlp.py",
    },
    "yaml": {"libraries/front_matter.py", "import_export/org_export.py"},
    "xllamacpp": "capabilities/embedded_models/llama_provider.py",
}

STARTS_PROCESSES = {
    "libraries/processes/supervised_process.py", "capabilities/embedded_models/model_weights.py", "commands/chaos.py",
    "libraries/sandbox/sandbox_runner.py", "libraries/git_program.py",
    "operations/alerts.py",
    "capabilities/toolbox/file_tools.py",
    "capabilities/workers/running/relay.py",
    "capabilities/workers/running/worker_sandbox.py",
    "capabilities/workers/harnesses/harness_table.py",
}  # fmt: skip

MAY_PRINT = {"commands"}
PRINTS = {
    "libraries/sandbox/sandbox_launcher.py": "its standard output is its verdict, which the engine reads",
    "kernel/line.py": "it is a program of its own: python -m lemming.kernel.line",
}

# A broad `except` stands only at the edges: a turn, a model call, a tool call, a channel, a plugin, a thread,
# the process.
EDGES = {
    "kernel/base/json_schema/bounded_validator.py": 1,
    "kernel/llm/model_call.py": 1,
    "libraries/concurrency/supervised_threads.py": 1,
    "capabilities/channels/channel.py": 1,
    "capabilities/channels/http_api.py": 1,  # the edge of a request
    "capabilities/channels/channel_service.py": 1,  # the edge of a thread: raised by who looks at its end
    "commands/error_reporting.py": 1,
    "dashboard/live_state.py": 1,
    "kernel/base/blocking_deadline.py": 1,
    "operations/turns/parallel_turns.py": 1,
    "engine.py": 1,  # what somebody's own observer does
    "kernel/tick/parallel_calls.py": 1,  # the edge of a thread: raised by who waits for it
    "libraries/sandbox/sandbox_launcher.py": 1,
    "kernel/plugins/provider_errors.py": 1,
    "capabilities/mcp/mcp_session.py": 1,
    "kernel/turn/turn_loop.py": 1,
    "kernel/plugins/plugin_registry.py": 1,
    "kernel/journal/capability_queries.py": 1,  # what a plugin describes
    "kernel/providers.py": 1,
    "kernel/tools/tool_call.py": 1,
    "capabilities/gates/gate_evaluation.py": 2,
    "capabilities/gates/gate_judges.py": 1,
    "kernel/tick/error_boundary.py": 1,
    "capabilities/gates/turn_spending.py": 1,
    "capabilities/toolbox/functions/function_call.py": 1,
    "capabilities/toolbox/functions/tool_files.py": 1,
    "capabilities/toolbox/functions/function_worker.py": 1,
    "capabilities/toolbox/document_reader.py": 1,
}


def test_every_room_has_a_floor() -> None:
    assert {room for module in MODULES if module for room in rooms_of(module)} == FLOOR_OF.keys()


def rooms_of(module: str) -> set[str]:
    """Return the room of a module at the top, and that within the kernel if it is one of the kernel's."""
    room = room_of(module)
    return {room.partition("/")[0]} | ({room} if room.startswith("kernel/") else set())


@pytest.mark.parametrize("types_only", [False, True], ids=["to run", "for types"])
def test_arrows_between_rooms_run_down(types_only: bool) -> None:
    found = {name: not_below(name, types_only=types_only) for name in TREES}
    assert {name: rooms for name, rooms in found.items() if rooms} == {}


def not_below(name: str, *, types_only: bool) -> set[str]:
    """Return the rooms that a file imports from and that are not on a floor below its own."""
    own = rooms_of(module_of(name))
    if own == {""}:  # the package itself
        return set()
    used = {room for module in own_imports(name, types_only=types_only) for room in rooms_of(module)}
    return {
        room
        for room in used - own - {"lemming"}
        for mine in own
        if ("/" in room) == ("/" in mine) and FLOOR_OF[room] >= FLOOR_OF[mine]
    }


def test_the_package_does_not_go_through_its_own_doors() -> None:
    """They are for whoever is outside; inside, a name has one place."""
    users = {name: own_imports(name) | own_imports(name, types_only=True) for name in TREES}
    doors = DOORS - {"errors"}
    found = {
        name for name, used in users.items() if used & (doors - {"ext"} if name.startswith(CAPABILITIES) else doors)
    }
    assert found == set()


def test_capabilities_reach_turns_and_ticks_through_one_module_but_for_those_that_the_page_lists() -> None:
    page = (PACKAGE.parent / "docs" / "capabilities.md").read_text()
    section = page.partition("## What a capability imports")[2].partition("\n## ")[0]
    listed = {*re.findall(r"`((?:turn|tick)\.[\w.]+)`", section)}
    used = {
        node.module.removeprefix("lemming.kernel.")
        for name in TREES
        if name.startswith(CAPABILITIES)
        for node in nodes(name)
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith(("lemming.kernel.turn", "lemming.kernel.tick"))
    }
    assert used == listed
    assert len(listed) <= 11, "from here on only fewer"


def test_the_two_lists_of_the_module_for_capabilities_are_one() -> None:
    ext = import_module("lemming.ext")
    typed = {
        alias.name: node.module
        for node in nodes("ext.py")
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if (node.module or "").startswith("lemming")
    }
    assert {name: ext._MODULES[name] for name in dir(ext)} == typed
    assert all(getattr(ext, name) is not None for name in typed)


def test_a_door_hands_on_all_that_is_its_own() -> None:
    for name in sorted(DOORS - {"errors", "ext"}):
        door, room = import_module(f"lemming.{name}"), import_module(f"lemming.kernel.{name}")
        defined = {key for key, value in vars(room).items() if getattr(value, "__module__", "") == room.__name__}
        assert {key for key in defined if not key.startswith("_")} <= vars(door).keys(), name


def test_only_capabilities_import_a_capability_and_only_what_they_need() -> None:
    found: dict[str, set[str]] = {name: set() for name in NEEDS}
    for name in TREES:
        own, _, capability = room_of(module_of(name)).partition("/")
        used = {it for types_only in (False, True) for it in own_imports(name, types_only=types_only)}
        capabilities = {room_of(it).partition("/")[2] for it in used if it.startswith(f"{CAPABILITIES}.")}
        if own == CAPABILITIES and capability:
            found[capability] |= capabilities - {capability}
        elif own != CAPABILITIES:
            found.setdefault(own, set()).update(capabilities)
    assert {name: used for name, used in found.items() if name in NEEDS} == NEEDS
    assert {name: used for name, used in found.items() if used and name not in NEEDS} == {}


def test_imports_form_no_circle() -> None:
    """Those for types alone count too: what two files say of each other belongs into one, or into a third."""
    graph = {
        module_of(name): (own_imports(name) | own_imports(name, types_only=True)) - {module_of(name)} for name in TREES
    }
    assert len(list(TopologicalSorter(graph).static_order())) >= len(graph)


def test_the_architecture_page_draws_the_same_floors() -> None:
    page = (PACKAGE.parent / "docs" / "architecture.md").read_text()
    house, _, kernel = page.partition("\nlemming/\n")[2].partition("\nlemming/kernel/\n")
    assert (drawn(house), drawn(kernel)) == (dict(enumerate(FLOORS)), dict(enumerate(KERNEL_FLOORS)))


def drawn(page: str) -> dict[int, set[str]]:
    floors: dict[int, set[str]] = {}
    for rooms, number in re.findall(r"^ {2}(.+?) {2,}(\d+)\b", page, re.MULTILINE):
        floors.setdefault(int(number), set()).update(rooms.replace("/", "").split())
    return floors


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
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert set(SDKS) & set(ran.stdout.split()) == set()


def test_few_files_start_processes() -> None:
    assert {name for name in TREES if "subprocess" in imports(name)} == STARTS_PROCESSES


def test_nothing_prints_but_the_commands() -> None:
    prints = {name for name in TREES for called, _ in calls(name) if called in ("print", "sys.stdout.write")}
    assert {name for name in prints if room_of(module_of(name)) not in MAY_PRINT} == set(PRINTS)


def test_commands_print_through_the_screen_only() -> None:
    """There, whatever could steer a terminal is taken out of every text."""
    of_capabilities = {path.partition(":")[0] for _, path in provided("screens", "commands").values()}
    raw = {"click.echo", "click.secho", "pprint", "pprint.pprint", "print", "typer.echo", "typer.secho"}
    found = {
        (name, called)
        for name in TREES
        if (module_of(name).startswith(("cli", "commands")) or f"lemming.{module_of(name)}" in of_capabilities)
        and name != "commands/terminal.py"
        for called, _ in calls(name)
        if called in raw
        or called.startswith(("traceback.print", "sys.stdout.w", "sys.stderr.w", "sys.__", "logging."))
        or (called.endswith((".write", ".writelines")) and called != "os.write")
    }
    assert found == set()


# Where a function searches by a pattern that does not stand there as it is, and whose it is.
SEARCHES = {
    "kernel/files/field_types.py": "the tables of our own formats",
    "capabilities/hosted_models/provider_http.py": "our own words, put together",
    "journal_tools/agent_rename.py": "a name, escaped",
    "capabilities/toolbox/functions/tool_files.py": "a name, escaped",
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
    """`compile_schema_pattern` is the door: Python's `re` can take for ever, and holds the interpreter."""
    assert {name for name in TREES if any(searches(name))} == SEARCHES.keys()
    assert {name for name in TREES if "rust-regex" in FILES[name].read_text()} == {"kernel/base/name_patterns.py"}


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
    assert [name for name, path in FILES.items() if lines_of(path) > LONG_FILES.get(name, LONGEST_FILE)] == []


def test_no_file_of_tests_has_outgrown_itself_without_a_reason() -> None:
    tests = Path(__file__).parent
    long = {str(it.relative_to(tests)) for it in tests.rglob("*.py") if lines_of(it) > LONGEST_FILE}
    assert sorted(long - LONG_TESTS.keys()) == []


def lines_of(path: Path) -> int:
    return len(path.read_text().splitlines())


def test_every_module_says_what_lives_in_it() -> None:
    assert [name for name, tree in TREES.items() if not ast.get_docstring(tree)] == []


def test_helpers_of_the_tests_have_names_of_their_own() -> None:
    tests = Path(__file__).parent
    names = [path.name for path in tests.rglob("*.py") if not path.name.startswith(("test_", "conftest"))]
    assert sorted(name for name in {*names} if names.count(name) > 1) == []
