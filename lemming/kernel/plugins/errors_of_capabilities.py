"""Find the plugin's capability that an error came from, by the frames of the traceback."""

from __future__ import annotations

from traceback import walk_tb
from types import FrameType

from lemming.kernel.plugins.plugin_registry import module_registrations
from lemming.kernel.plugins.provider_errors import relative_module_file

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
