"""A worker process for functions with `@tool`: `python -m` this module, with MEMORY_BYTES.

Standard input holds one request per line, and standard output receives one reply per line; functions can
access neither. The process exits at the end of input.
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

from lemming.capabilities.toolbox.functions.function_call import (
    FunctionResult,
    FunctionSpec,
    context_from_json,
    format_trace,
    result_to_json,
    run_function,
)
from lemming.capabilities.toolbox.functions.function_import import FunctionLocation, Sources, get_attribute, load_module
from lemming.ext import LemmingError
from lemming.kernel.base.errors import DiskError, ToolError
from lemming.kernel.tools import ToolResult
from lemming.kernel.tools.tool_context import RequestedEffects
from lemming.libraries.tool_decorator import get_declaration


def main() -> None:
    """Answer requests until the end of input. The first line contains the sources of tools."""
    requests, answers = _detach_stream(0, os.O_RDONLY), _detach_stream(1, os.O_WRONLY)
    _limit_memory(int(sys.argv[1]))
    functions: dict[FunctionLocation, Callable[..., Any]] = {}
    specs: dict[FunctionLocation, FunctionSpec] = {}
    with open(requests, "rb") as lines, FileIO(answers, "w") as replies:
        texts = json.loads(lines.readline() or "{}")
        sources = {file: text.encode("latin-1") for file, text in texts.items()}
        replies.write(b"ready\n")
        for line in lines:
            replies.write(_handle_request(json.loads(line), functions, specs, sources))


def _handle_request(
    request: dict[str, Any],
    functions: dict[FunctionLocation, Callable[..., Any]],
    specs: dict[FunctionLocation, FunctionSpec],
    sources: Sources,
) -> bytes:
    if "load" in request:
        with contextlib.suppress(Exception, SystemExit):  # the engine finds that itself, and says where
            load_module(Path(request["load"]), sources)
        return b"{}\n"
    if "checks" in request:
        from lemming.capabilities.toolbox.functions import function_tool  # noqa: F401 - takes as long as all the rest

        return b"{}\n"
    location, reply = FunctionLocation(*request["home"]), {"number": request["number"]}
    try:
        if location not in functions:
            functions[location] = _load_function(location, Path(request["base"]), sources)
        function_result = run_function(
            _get_spec(functions[location], location, specs, request), request["args"], context_from_json(request)
        )
    except LemmingError as error:
        if isinstance(error, DiskError) and not error.concerns_one_file:  # not an error of the call
            return _encode_line({**reply, "disk": [error.message, error.where, error.hint]})
        function_result = FunctionResult(ToolResult(False, str(error)), RequestedEffects())
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the edge of a tool call: loading somebody's code
        reason = f"{location.qualname} cannot be loaded: {type(error).__name__}: {error}"
        function_result = FunctionResult(
            ToolResult(False, reason), RequestedEffects(), format_trace(error, Path(request["base"]))
        )
    return _encode_line({**result_to_json(function_result), **reply})


def _encode_line(reply: dict[str, Any]) -> bytes:
    return json.dumps(reply, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def _get_spec(
    function: Callable[..., Any],
    location: FunctionLocation,
    specs: dict[FunctionLocation, FunctionSpec],
    request: dict[str, Any],
) -> FunctionSpec:
    """Return a function as needed for a call. A spec with argument validation is cached in `specs`."""
    base = Path(request["base"]) if location.file else None
    if request["callee"]:
        name, contexts, attempts = request["callee"]
        return FunctionSpec(function, name, contexts, attempts, base)
    if location not in specs:
        from lemming.capabilities.toolbox.functions.function_tool import FunctionTool

        specs[location] = FunctionTool(function, base=base, location=location).spec
    return specs[location]


def _load_function(location: FunctionLocation, base: Path, sources: Sources) -> Callable[..., Any]:
    module = load_module(base / location.file, sources) if location.file else import_module(location.module)
    function: Callable[..., Any] = get_attribute(module, location.qualname)
    if get_declaration(function) is None:
        raise ToolError(f"{location.qualname} of {module.__name__} is no function with @tool")
    return function


def _detach_stream(descriptor: int, flags: int) -> int:
    """Return a copy of a standard stream, and redirect the stream itself to the null device."""
    copy, null_device = os.dup(descriptor), os.open(os.devnull, flags)
    os.dup2(null_device, descriptor)
    os.close(null_device)
    return copy


def _limit_memory(limit_bytes: int) -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, hard))


if __name__ == "__main__":
    main()
