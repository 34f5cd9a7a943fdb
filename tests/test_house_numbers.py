"""Integers that others say are read through one bounded accessor, `lemming.kernel.base.integers`.

Python's integers have no end, and its texts of integers do: what is computed with a foreign number without a
bound may be written, and never read again.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from package import TREES, nodes

WHERE_OTHERS_SPEAK = ("capabilities/", "commands/", "dashboard/")
OURS = {
    "capabilities/channels/http_channel.py": "a moment of our own clock",
    "libraries/conditions/predicates.py": "a place of at most seven digits",
    "capabilities/embedded_models/llama_provider.py": "a count of llama.cpp in this process",
    "read_model/tick_facts.py": "a count in our own journal",
    "capabilities/plans/step_requests.py": "a tick that the engine gave",
    "libraries/processes/process_tree.py": "fields of /proc",
    "capabilities/program_models/program_provider.py": "the status of a child",
    "kernel/obligations/request_payloads.py": "a fraction, bounded as it was read",
    "libraries/sandbox/sandbox_launcher.py": "a fraction of our own order",
    "capabilities/toolbox/functions/signature.py": "a line of a file, counted by Python",
    "capabilities/toolbox/functions/tool_files.py": "a line of a file, counted by Python",
    "capabilities/toolbox/functions/worker_pool.py": "the status of a child",
    "capabilities/trust/clean_turns.py": "a fraction, compared with its bounds before",
    "capabilities/trust/origins.py": "a fraction or digits, which have a bound",
    "commands/cost.py": "a fraction, bounded above; a tick of our own journal",
    "dashboard/report_builder.py": "a constant of the page",
    "dashboard/page_server.py": "a port in a file of the user's own",
}
"""Files there that make an integer of something else, and of what."""
ADDED = (ast.Add, ast.Sub, ast.Mult, ast.Pow, ast.LShift)


def files() -> Iterator[str]:
    return (name for name in TREES if name.startswith(WHERE_OTHERS_SPEAK))


def makes_an_integer(node: ast.AST) -> bool:
    """Return whether something is made an integer of that may be anything: no argument of our own process."""
    is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "int"
    if not is_call or len(node.args) != 1 or isinstance(node.args[0], ast.Compare | ast.BoolOp | ast.UnaryOp):
        return False
    return not re.match(r"(sys\.argv\b|is_|MAX_AMOUNT$)", ast.unparse(node.args[0]))


def says_by_key(node: ast.AST) -> bool:
    """Return whether a value is looked up in JSON: `payload["deadline"]`, `payload.get("deadline")`."""
    if isinstance(node, ast.Subscript):
        key = node.slice
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
        key = node.args[0]
    else:
        return False
    return isinstance(key, ast.Constant) and isinstance(key.value, str)


def test_what_others_say_becomes_an_integer_in_one_place() -> None:
    found = {name for name in files() if any(map(makes_an_integer, nodes(name)))}
    assert found - OURS.keys() == set(), "use read_int or to_int of lemming.kernel.base.integers"


def test_no_file_is_excused_that_makes_no_integer() -> None:
    assert {name for name in OURS if not any(map(makes_an_integer, nodes(name)))} == set()


def test_nothing_is_computed_with_a_number_of_a_payload_before_it_has_bounds() -> None:
    found = [
        f"{name}:{node.lineno}: {ast.unparse(node)}"
        for name in files()
        for node in nodes(name)
        if isinstance(node, ast.BinOp)
        and isinstance(node.op, ADDED)
        and "payload" in ast.unparse(node)
        and any(map(says_by_key, (node.left, node.right)))
    ]
    assert found == []
