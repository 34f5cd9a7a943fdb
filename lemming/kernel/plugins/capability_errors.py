"""Errors in the code of a capability: with capability, file and line, also found by the frames of a traceback."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from traceback import walk_tb
from types import FrameType
from typing import Any

from lemming.kernel.plugins.plugin_registry import module_registrations
from lemming.kernel.plugins.provider_errors import relative_module_file

PAGE = "docs/capabilities.md"
MAX_LEVELS = 64
"""Levels of a snapshot, a state or a payload. A line of a journal or a ledger may have 128."""
MAX_CHARS = 32 << 20
"""Size of a snapshot or a state. A line of a journal may have 64 MiB."""
MAX_BITS = 14_000
"""Length of an integer: readers take 4300 digits."""


class HookError(TypeError):
    """A hook of a capability breaks the rules for hooks. It fails the turn; the message has the place."""


def capability_error(name: str, hook: Callable[..., Any], problem: str) -> HookError:
    """Return the error that fails a turn because a hook of a capability breaks the rules for hooks."""
    while isinstance(hook, partial):
        hook = hook.func
    return HookError(f"{name}.{getattr(hook, '__name__', 'intercept')}{find_place(hook)} {problem}")


def check_json(name: str, hook: Callable[..., Any], value: Any, expected: str) -> None:
    """Check that a hook returned a JSON object.

    Raises:
        HookError: The value has another type, or a part that no journal or ledger can hold.
    """
    if not isinstance(value, dict):
        got = type(value).__name__
        raise capability_error(name, hook, f"must return {expected}, got {got}: see {PAGE}")
    if problem := next(find_json_problems(value), ""):
        raise capability_error(name, hook, f"must return {expected}, got {problem}")
    if (size := _count_chars(value)) > MAX_CHARS:
        got = f"{size:,} characters of it: keep at most {MAX_CHARS:,}, and the rest in a file"
        raise capability_error(name, hook, f"must return {expected}, got {got}")


def find_json_problems(value: Any, pointer: str = "", levels: int = MAX_LEVELS) -> Iterator[str]:
    """Yield the parts of a value that no journal or ledger can hold. A value within itself is too deep, too."""
    if isinstance(value, (Mapping, list, tuple)) and not levels:
        yield f"more than {MAX_LEVELS} levels at {pointer[:60]}...: make it flatter"
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                yield f"the key {key!r} of type {type(key).__name__} at {pointer or '/'}: keys are texts"
            yield from find_json_problems(item, f"{pointer}/{key}", levels - 1)
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            yield from find_json_problems(item, f"{pointer}/{number}", levels - 1)
    elif isinstance(value, int) and value.bit_length() > MAX_BITS:
        yield f"an integer of {value.bit_length():,} bits at {pointer}: write it as a text"
    elif isinstance(value, float) and not math.isfinite(value):
        yield f"{value} at {pointer}: JSON has no such number"
    elif not (value is None or isinstance(value, (str, bool, int, float))):
        yield f"{type(value).__name__} at {pointer}: convert it to JSON"


def _count_chars(value: Any) -> int:
    """Return the approximate length of a value as JSON."""
    if isinstance(value, Mapping):
        return sum(len(key) + 4 + _count_chars(item) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return sum(1 + _count_chars(item) for item in value)
    return len(value) if isinstance(value, str) else 8


def find_place(value: Any) -> str:
    """Return file and line of a function, in brackets, or an empty text."""
    code = getattr(value, "__code__", None)
    return f" ({code.co_filename}:{code.co_firstlineno})" if code else ""


Step = tuple[FrameType, int]
"""A frame of a traceback, with the line."""


def find_capability_at_fault(error: BaseException) -> str:
    """Return the plugin's capability whose code, or code that it called, raised an error, with the line; else empty.

    A capability around the turn is not at fault for the turn inside it: its frames end the search.
    """
    for step in reversed([*walk_tb(error.__traceback__)]):
        if step[0].f_code.co_name in RUN_TURN:
            break
        if names := module_registrations("capability", _frame_module(step[0])):
            return f"{' or '.join(names)}, {locate_frame(step)}"
    return find_capability_at_fault(error.__cause__) if error.__cause__ else ""


RUN_TURN = {"run_inside", "run_innermost"}
"""Functions of `turn_loop` with which a capability around a turn runs the turn."""


def locate_frame(step: Step) -> str:
    """Return the file of a frame, relative to its package, and the line."""
    frame, line = step
    return f"{relative_module_file(_frame_module(frame), frame.f_code.co_filename)}:{line}"


def _frame_module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))
