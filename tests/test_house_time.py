"""Time that is left is asked for, never copied: `kernel/base/blocking_deadline.py` is where it is counted."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from package import TREES, calls, nodes

DEADLINES = "kernel/base/blocking_deadline.py"
# They run behind the walls, with nothing but the standard library on their path.
ALONE = {"libraries/sandbox/sandbox_launcher.py", "libraries/processes/process_tree.py"}
ENDS = {"deadline", "end_at", "ends", "ends_at", "expires", "give_up", "give_up_at", "until", "until_s"}


def test_nobody_reads_the_monotonic_clock_but_deadlines() -> None:
    """How long something took is told by `time.perf_counter()`; a clock may be handed in, as a default."""
    assert {name for name in TREES for called, _ in calls(name) if called == "time.monotonic"} == ALONE


def test_nobody_reckons_with_a_clock_that_was_handed_in() -> None:
    """`clock() + seconds` is an end that cannot move: `Deadline(seconds, clock=clock)` can."""
    assert {name for name in TREES if any(sums_with_a_clock(name))} - ALONE == {DEADLINES}


def sums_with_a_clock(name: str) -> Iterator[str]:
    """Yield the sums and comparisons that have a reading of a monotonic clock as a term."""
    if not any(isinstance(node, ast.Attribute) and node.attr == "monotonic" for node in nodes(name)):
        return
    for node in nodes(name):
        terms = [node.left, node.right] if isinstance(node, ast.BinOp) else []
        terms = [node.left, *node.comparators] if isinstance(node, ast.Compare) else terms
        called = [ast.unparse(term.func) for term in terms if isinstance(term, ast.Call)]
        if any(it.endswith(("clock", "monotonic")) for it in called):
            yield ast.unparse(node)


def test_an_end_is_handed_on_as_a_deadline() -> None:
    floats = [
        f"{name}: {argument.arg}"
        for name in TREES
        if name not in ALONE
        for node in nodes(name)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        if argument.arg in ENDS and argument.annotation and "float" in ast.unparse(argument.annotation)
    ]
    assert floats == []
