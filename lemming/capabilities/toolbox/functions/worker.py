"""A process that runs functions with `@tool`: `python -m` this module, with MEMORY_BYTES.

Standard input holds a request a line, standard output gets an answer a line; a function sees neither. It ends
when its input does.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable
from importlib import import_module
from io import FileIO
from pathlib import Path
from typing import Any

from lemming.capabilities.toolbox.functions.body import Callee, Done, run, trace_of
from lemming.capabilities.toolbox.functions.loading import Home, Sources, attribute_of, load
from lemming.capabilities.toolbox.functions.wire import context_in, reply_of, sources_in
from lemming.kernel.base.errors import DiskError, LemmingError, ToolError
from lemming.kernel.tools import ToolResult
from lemming.kernel.tools.context import CallEffects
from lemming.kernel.tools.declared import declared


def main() -> None:
    """Answer requests until there are no more; the first line holds the sources of tools."""
    requests, answers = _apart(0, os.O_RDONLY), _apart(1, os.O_WRONLY)
    _limit_memory(int(sys.argv[1]))
    known: dict[Home, Callable[..., Any]] = {}
    checking: dict[Home, Callee] = {}
    with open(requests, "rb") as lines, FileIO(answers, "w") as replies:
        sources = sources_in(json.loads(lines.readline() or "{}"))
        replies.write(b"ready\n")
        for line in lines:
            replies.write(_answer(json.loads(line), known, checking, sources))


def _answer(
    request: dict[str, Any],
    known: dict[Home, Callable[..., Any]],
    checking: dict[Home, Callee],
    sources: Sources,
) -> bytes:
    if "load" in request:
        with contextlib.suppress(Exception, SystemExit):  # the engine finds that itself, and says where
            load(Path(request["load"]), sources)
        return b"{}\n"
    if "checks" in request:
        from lemming.capabilities.toolbox.functions import tool  # noqa: F401 - takes as long as all the rest

        return b"{}\n"
    home, reply = Home(*request["home"]), {"number": request["number"]}
    try:
        if home not in known:
            known[home] = _found(home, Path(request["base"]), sources)
        done = run(_callee(known[home], home, checking, request), request["args"], context_in(request))
    except LemmingError as error:
        if isinstance(error, DiskError) and not error.concerns_one_file:  # it says nothing about the call
            return _line({**reply, "disk": [error.message, error.where, error.hint]})
        done = Done(ToolResult(False, str(error)), CallEffects())
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the edge of a tool call: loading somebody's code
        why = f"{home.qualname} cannot be loaded: {type(error).__name__}: {error}"
        done = Done(ToolResult(False, why), CallEffects(), trace_of(error, Path(request["base"])))
    return _line({**reply_of(done), **reply})


def _line(reply: dict[str, Any]) -> bytes:
    return json.dumps(reply, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def _callee(
    function: Callable[..., Any], home: Home, checking: dict[Home, Callee], request: dict[str, Any]
) -> Callee:
    """Return a function as a call needs it; one whose arguments are checked here is kept in `checking`."""
    base = Path(request["base"]) if home.file else None
    if request["callee"]:
        name, contexts, attempts = request["callee"]
        return Callee(function, name, contexts, attempts, base)
    if home not in checking:
        from lemming.capabilities.toolbox.functions.tool import FunctionTool

        checking[home] = FunctionTool(function, base=base, home=home).callee
    return checking[home]


def _found(home: Home, base: Path, sources: Sources) -> Callable[..., Any]:
    module = load(base / home.file, sources) if home.file else import_module(home.module)
    function: Callable[..., Any] = attribute_of(module, home.qualname)
    if declared(function) is None:
        raise ToolError(f"{home.qualname} of {module.__name__} is no function with @tool")
    return function


def _apart(descriptor: int, flags: int) -> int:
    """Return a copy of a standard stream, in the place of which functions find nothing."""
    copy, nothing = os.dup(descriptor), os.open(os.devnull, flags)
    os.dup2(nothing, descriptor)
    os.close(nothing)
    return copy


def _limit_memory(most: int) -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))


if __name__ == "__main__":
    main()
