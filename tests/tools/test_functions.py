"""A function is a tool: what a model is told of it, what it gives, and how its calls end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from workshop import Workshop, call

from lemming.kernel.memory import load_memory
from lemming.kernel.tools import ToolRegistry
from lemming.libraries.tool_decorator import tool
from lemming.testing import tree

pytestmark = pytest.mark.usefixtures("untried")

EVERY_KIND = '''
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Literal, Optional
from pydantic import BaseModel

class Colour(Enum):
    RED = "red"
    BLUE = "blue"

class Person(BaseModel):
    name: str
    born: date | None = None

@dataclass
class Place:
    x: int
    y: int = 0

@tool(repeatable=True)
def everything(
    person: Person, place: Place, colour: Colour, tags: list[str], sizes: dict[str, int],
    unit: Literal["C", "F"] = "C", count: int | None = None, note: Optional[str] = None,
) -> dict:
    """Take every kind.

    Args:
        person: Who it is.
        count: How many.
    """
    return {"person": person, "place": place, "colour": colour, "tags": tags, "sizes": sizes, "count": count}
'''
GIVEN: dict[str, Any] = {
    "person": {"name": "Ada", "born": "1815-12-10"},
    "place": {"x": 3},
    "colour": "red",
    "tags": ["a"],
    "sizes": {"s": 1},
}


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Workshop]:
    shop = Workshop(tmp_path / "org")
    yield shop
    shop.org.close()


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    """The functions of `ENDS`: tests leave nothing behind in there."""
    shop = Workshop(tmp_path_factory.mktemp("ends") / "org")
    shop.file(ENDS)
    yield shop
    shop.org.close()


def test_a_function_is_told_of_and_called_with_every_kind_of_argument(shop: Workshop) -> None:
    shop.file(EVERY_KIND, header=_WITHOUT_FUTURE)
    require_told(shop)
    result = shop.call("everything", **GIVEN, count="4")
    assert result.output == (
        '{"person":{"name":"Ada","born":"1815-12-10"},"place":{"x":3,"y":0},"colour":"red",'
        '"tags":["a"],"sizes":{"s":1},"count":4}'
    )
    assert result.outcome == "ok"


def require_told(shop: Workshop) -> None:
    """A model is told what signature, hints and docstring say."""
    known = shop.toolset["everything"]
    assert known.description == "Take every kind."
    properties = known.parameters["properties"]
    assert properties["person"]["description"] == "Who it is."
    assert properties["person"]["properties"]["name"] == {"type": "string"}
    assert properties["count"]["description"] == "How many."
    assert properties["unit"] == {"default": "C", "enum": ["C", "F"], "type": "string"}
    assert properties["colour"] == {"enum": ["red", "blue"], "type": "string"}
    assert known.parameters["required"] == ["person", "place", "colour", "tags", "sizes"]
    assert "$" not in str(known.parameters)


OWN_TYPES = """
@tool
def plain(size: float, count: int, name: str, many: list[float]) -> str:
    checks = "pydantic" in sys.modules
    return f"{size!r} {count!r} {name!r} {many!r} {checks}"
"""
OTHER_TYPES = """
from typing import Annotated
from pydantic import AfterValidator

@tool
def other(number: Annotated[int, AfterValidator(lambda n: n + 1)], names: dict[int, str], far: float) -> str:
    return f"{number!r} {names!r} {far!r}"
"""


def test_arguments_have_the_functions_own_types_whether_json_has_these_or_not(shop: Workshop) -> None:
    shop.file(OWN_TYPES)
    shop.file(OTHER_TYPES, "tools/other.py", header="from lemming.tools import tool\n")
    found = shop.call("plain", size=3, count="4", name=5, many=[1, 2.5])
    assert found.output == "3.0 4 '5' [1.0, 2.5] False"  # what checks arguments was not loaded
    assert shop.call("other", number=1, names={"1": "a"}, far=2).output == "2 {1: 'a'} 2.0"
    assert shop.call("other", number=1, names={}, far=2).output == "2 {} 2.0"
    assert shop.call("other", number=1, names={}, far="inf").output == "2 {} inf"


DOCSTRINGS = {
    "google": "Add.\n\n    Args:\n        a: The first.\n    ",
    "numpy": "Add.\n\n    Parameters\n    ----------\n    a : int\n        The first.\n    ",
    "rest": "Add.\n\n    :param a: The first.\n    ",
}


def test_each_style_of_docstring_is_understood(shop: Workshop) -> None:
    code = '@tool\ndef {}(a: int, b: int = 1) -> int:\n    """{}"""\n    return a + b\n'
    shop.file("".join(code.format(*style) for style in DOCSTRINGS.items()))
    for style in DOCSTRINGS:
        known = shop.toolset[style]
        assert known.description == "Add."
        assert known.parameters["properties"]["a"] == {"description": "The first.", "type": "integer"}
        assert shop.call(style, a=2).output == "3"


def test_every_wrong_argument_is_named_with_the_nearest_spelling(shop: Workshop) -> None:
    shop.file("@tool\ndef weather(city: str, days: int = 1) -> str:\n    return city\n")
    result = shop.call("weather", cty="Oslo", days="soon")
    assert result.outcome == "invalid_args"
    for said in ('"city" is required', '"days": input should be a valid integer', 'got "soon"', '"cty"', '"city"?'):
        assert said in result.output


ENDS = '''
@tool
def fail(how: str) -> object:
    """End in some way."""
    if how == "exit":
        sys.exit(3)
    if how == "_exit":
        os._exit(3)
    if how == "memory":
        return "x" * (2 << 30)
    if how == "recoverable":
        raise RecoverableError("try London; it is spelled so")
    if how == "error":
        return {}["a"]
    if how == "cycle":
        ring = []
        ring.append(ring)
        return ring
    if how == "prints":
        for _ in range(100):
            print("x" * (1 << 20))
        os.write(1, b"no answer\\n")
        return "printed"
    if how == "killed":
        os.kill(os.getpid(), 9)
    if how == "interrupt":
        raise KeyboardInterrupt
    if how == "says no":
        return ToolResult(False, "no")
    if how == "unsayable":
        class Unsayable(Exception):
            def __str__(self) -> str:
                raise ValueError
        raise Unsayable

@tool(timeout_s=0.3)
def hang() -> str:
    import threading
    threading.Event().wait()

@tool(timeout_s=0.3, repeatable=True)
def hang_in_c() -> str:
    import ctypes
    ctypes.CDLL(None).pause()

@tool
async def later(number: int) -> int:
    import asyncio
    await asyncio.sleep(0)
    return number + 1
'''


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("how", "outcome", "said"),
    [
        ("exit", "failed", "fail failed: SystemExit: 3"),
        ("_exit", "interrupted", "fail: its process ended with exit status 3"),
        ("memory", "failed", "needed more memory"),
        ("error", "failed", "fail failed: KeyError: 'a'"),
        ("cycle", "failed", "what it returned cannot be told"),
        ("prints", "ok", "printed"),
        ("killed", "interrupted", "fail: its process was ended by SIGKILL"),
        ("interrupt", "failed", "KeyboardInterrupt"),
        ("says no", "failed", "no"),
        ("unsayable", "failed", "Unsayable"),
        ("nothing", "ok", ""),
    ],
)
def test_whatever_a_function_does_ends_its_call_only(ends: Workshop, how: str, outcome: str, said: str) -> None:
    result = ends.call("fail", how=how)
    assert (result.outcome, said in result.output) == (outcome, True), result.output
    assert ends.call("later", number=1).output == "2"


def test_a_recoverable_error_reaches_the_model_word_for_word(ends: Workshop) -> None:
    result = ends.call("fail", how="recoverable")
    assert (result.output, result.outcome) == ("try London; it is spelled so", "failed")


@pytest.mark.parametrize("name", ["hang", "hang_in_c"])
def test_a_call_that_takes_too_long_is_ended(ends: Workshop, name: str) -> None:
    result = ends.call(name)
    assert result.outcome == "timed_out"
    assert result.output.startswith(f"{name}: it took longer than 0.3 s and was ended")


def test_a_long_result_is_cut_and_kept_whole_in_the_workspace(shop: Workshop) -> None:
    shop.file('@tool(repeatable=True)\ndef much() -> str:\n    return "line\\n" * 20_000\n')
    report = shop.run(call("much"))
    (record,) = shop.finished()
    assert record["output"].endswith(
        "[cut: the first 32768 of 100000 bytes are shown; the whole is in workspace/tool_results/00000001-0-much.txt]"
    )
    kept = shop.base / "agents/ada/workspace/tool_results/00000001-0-much.txt"
    assert kept.read_text() == "line\n" * 20_000
    assert report.turns[0].status == "waiting"


CONTEXT = '''
@tool
def count(ctx: ToolContext, step: int = 1) -> dict:
    """Count."""
    ctx.state["n"] = ctx.state.get("n", 0) + step
    ctx.memory["last"] = {"step": step}
    ctx.emit("report", {"text": f"at {ctx.state['n']}"}, ["counted"])
    ctx.log.info("counted", step=step)
    (ctx.workspace / "count.txt").write_text(str(ctx.state["n"]))
    return {"n": ctx.state["n"], "who": ctx.agent.name, "tick": ctx.tick, "call": ctx.call_id,
            "known": sorted(ctx.memory), "key": ctx.idempotency_key}

@tool
def break_down(ctx: ToolContext) -> str:
    """Want much, and fail."""
    ctx.state["n"] = 1
    ctx.emit("report", {"text": "never"})
    raise ValueError("no")
'''


def test_a_function_keeps_state_memories_and_entries_by_its_context(shop: Workshop) -> None:
    shop.file(CONTEXT)
    shop.run(call("count"), call("count", step=2), call("break_down"))
    assert load_memory(shop.base, "ada", "state.count") == {"n": 3}
    assert load_memory(shop.base, "ada", "last") == {"step": 2}
    assert load_memory(shop.base, "ada", "state.break_down") is None
    entries = [text for path, text in tree(shop.base).items() if "/outbox/" in path]
    assert len(entries) == 3  # what the reply says, and one of each call that worked
    assert (shop.base / "agents/ada/workspace/count.txt").read_text() == "3"
    first, second, _ = shop.finished()
    assert '"call":"1/ada/0"' in first["output"]
    assert '"known":["last","state.count"]' in second["output"]
    log = (shop.base / "logs/engine.log").read_text()
    assert '"said":"counted"' in log
    assert "tools/mine.py:" in log
    assert "ValueError: no" in log


def test_what_tools_keep_for_themselves_is_in_no_prompt(shop: Workshop) -> None:
    shop.file(CONTEXT)
    shop.run(call("count"))
    shop.run(call("count"))
    from lemming.testing import journal_lines

    (started,) = [line for line in journal_lines(shop.base, 2) if line["type"] == "turn_started"]
    assert "state.count" not in str(started["prompt"])
    assert "last" in str(started["prompt"])


def test_transient_errors_of_a_repeatable_tool_are_tried_again_and_counted(shop: Workshop) -> None:
    shop.file(
        """
        @tool(repeatable=True, attempts=3)
        def flaky(ctx: ToolContext) -> str:
            seen = ctx.workspace / "seen.txt"
            seen.write_text((seen.read_text() if seen.exists() else "") + "x")
            if len(seen.read_text()) < 3:
                raise ConnectionError("gone")
            return "there"

        @tool
        def once(ctx: ToolContext) -> str:
            raise ConnectionError("gone")

        @tool(repeatable=True, attempts=3)
        def missing(ctx: ToolContext) -> str:
            raise FileNotFoundError("no such thing")
        """
    )
    shop.run(call("flaky"), call("once"), call("missing"))
    flaky, once, missing = shop.finished()
    assert "attempts" not in missing
    assert (flaky["output"], flaky["attempts"]) == ("there", 3)
    assert "attempts" not in once
    assert once["output"] == "once failed: ConnectionError: gone"


def test_a_call_that_is_tried_again_is_given_what_it_was_given_first(shop: Workshop) -> None:
    shop.file(
        """
        @tool(repeatable=True, attempts=3)
        def drain(ctx: ToolContext, items: list[str]) -> str:
            seen = ctx.workspace / "seen.txt"
            is_first, sent = not seen.exists(), [items.pop(), items.pop()]
            seen.write_text("x")
            if is_first:
                raise ConnectionError("gone")
            return ",".join(sent)
        """
    )
    shop.run(call("drain", items=["a", "b"]))
    (drained,) = shop.finished()
    assert (drained["output"], drained["attempts"]) == ("b,a", 2)


def test_a_kept_result_is_given_without_a_call_for_as_long_as_it_says(shop: Workshop) -> None:
    shop.file(
        """
        @tool(cache_ticks=1, repeatable=True)
        def price(ctx: ToolContext, of: str) -> str:
            return f"{of} at tick {ctx.tick}"
        """
    )
    for tick in range(1, 4):
        shop.run(call("price", of="tea"), call("price", of="rum"))
        said = [record["output"] for record in shop.finished(tick)]
        asked = 1 if tick <= 2 else 3
        assert said == [f"tea at tick {asked}", f"rum at tick {asked}"]
    assert len(load_memory(shop.base, "ada", "cache.price")) == 2


def test_a_function_registered_in_a_test_runs_on_a_thread() -> None:
    heard: list[int] = []

    @tool(name="closure_of_a_test", repeatable=True)
    def closure(number: int) -> None:
        """Hear a number."""
        heard.append(number)

    ToolRegistry.register(closure)
    try:
        known = ToolRegistry.get("closure_of_a_test")
        assert not known.keeps_deadline
        assert known.origin.startswith(__file__)
    finally:
        ToolRegistry.unregister("closure_of_a_test")


_WITHOUT_FUTURE = "from lemming.tools import tool\n"
