"""Parsing of hand-edited JSON files into typed values, with exact error messages.

A type is a frozen dataclass whose fields carry limits (`lemming.kernel.files.fast_decoder.describe_field`),
or a `dict[str, dataclass]`; nothing is coerced. Wrong values are errors. `UnknownKeyPolicy` defines the
treatment of unknown keys: a file that limits, grants or routes text accepts none.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from lemming.kernel.base.errors import ConfigError, Problem
from lemming.kernel.base.jsontext import MAX_DEPTH, TOKEN, JsonProblem, dump_compact, locate, parse
from lemming.kernel.files.disk_errors import suggest_repair
from lemming.kernel.files.fast_decoder import (
    TypeMismatch,
    extension_keys,
    field_types,
    file_fields,
    file_key,
    fit_value,
    load_extension_keys,
)
from lemming.kernel.files.unknown_keys import (
    UnknownKeyPolicy,
    describe_kind,
    describe_validation_error,
    is_fatal,
    resolve_type,
    suggest_value,
    summary,
    unknown_keys,
    with_hints,
)

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

T = TypeVar("T")

NOT_JSON = "LMG-303"
GONE = "LMG-309"
_SAVE_RETRIES, _RETRY_DELAY_S, _SAVE_WINDOW_S = 5, 0.02, 1.0
MAX_PROBLEMS = 20  # of one kind in one file; finding the place of each takes a walk over the text


@dataclasses.dataclass(frozen=True)
class Document(Generic[T]):
    """A parsed file: the typed value, the bytes and the warnings."""

    value: T
    raw: bytes
    warnings: tuple[Problem, ...] = ()


def retry_while_saving(
    base: os.PathLike[str], read: Callable[[], T], get_problems: Callable[[T], Iterable[Problem]]
) -> T:
    """Return the result of `read`. Retry for a moment while an editor is saving one of the files.

    An editor may empty or remove a file before writing it. A save is assumed if the file is invalid JSON and
    was modified a moment ago, or disappeared from the folder a moment ago. `get_problems` returns the
    problems of a result. The last error of `read` is raised.
    """
    for _ in range(_SAVE_RETRIES):
        try:
            result = read()
        except ConfigError as error:
            if not any(_is_being_saved(base, problem) for problem in error.problems):
                raise
        else:
            if not any(_is_being_saved(base, problem) for problem in get_problems(result)):
                return result
        time.sleep(_RETRY_DELAY_S)
    return read()


def _is_being_saved(base: os.PathLike[str], problem: Problem) -> bool:
    if problem.code not in (NOT_JSON, GONE):
        return False
    path = f"{os.fspath(base)}/{problem.file}"
    # The name that goes changes its folder, and the folder that goes the one above.
    for candidate in (path, os.path.dirname(path), os.fspath(base)) if problem.code == GONE else (path,):
        with contextlib.suppress(OSError):
            return time.time() - os.stat(candidate).st_mtime < _SAVE_WINDOW_S
    return False


@cache
def adapter(kind: Any) -> TypeAdapter[Any]:
    """Return the validator of a type. Cached, because importing pydantic and building a validator is slow.

    For a dataclass with extension keys (`fitting.extension_keys`), the validator covers these keys too.
    """
    from pydantic import TypeAdapter

    return TypeAdapter(expand_type(kind))


@cache
def expand_type(kind: Any) -> Any:
    """Return a type; for a dataclass with extension keys, an equivalent dataclass including these keys."""
    if not extension_keys(kind):
        return kind
    hints = field_types(kind)
    own_fields = [(field.name, hints[file_key(field)], copy(field)) for field in file_fields(kind)]
    extension_fields = [
        (extension.field.name, extension.type, copy(extension.field)) for _, extension in load_extension_keys(kind)
    ]
    checks = {"__post_init__": kind.__post_init__} if hasattr(kind, "__post_init__") else {}
    namespace = {"__doc__": kind.__doc__, **checks}
    return dataclasses.make_dataclass(
        kind.__name__, [*own_fields, *extension_fields], frozen=True, kw_only=True, namespace=namespace
    )


def from_expanded(kind: Any, validated: Any) -> Any:
    """Return a validator's result as a value of `kind`."""
    if not extension_keys(kind):
        return validated
    extension_values = (
        (key, extension, getattr(validated, extension.field.name)) for key, extension in load_extension_keys(kind)
    )
    extensions = {key: value for key, extension, value in extension_values if value != extension.default}
    return kind(**{field.name: getattr(validated, field.name) for field in file_fields(kind)}, extensions=extensions)


def to_value(kind: Any, plain: Any) -> Any:
    """Convert JSON values to a value of a type. Raise `ValueError` naming the first violation.

    Raises `TypeError` for a type that cannot be built from JSON.
    """
    try:
        return fit_value(kind, plain)
    except TypeMismatch:
        return _validate(kind, plain)


def _validate(kind: Any, plain: Any) -> Any:
    from pydantic import ValidationError
    from pydantic.errors import PydanticUserError

    try:
        return from_expanded(kind, adapter(kind).validate_json(dump_compact(plain), strict=True))
    except PydanticUserError as error:
        raise TypeError(str(error)) from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        location = "/".join(map(str, first["loc"]))
        message = describe_validation_error(first)
        raise ValueError(f"{location}: {message}" if location else message) from error


def find_problems(kind: Any, plain: Any) -> list[Problem]:
    """Return all violations in JSON values for a type, in plain words, with JSON pointers."""
    from pydantic import ValidationError

    try:
        adapter(kind).validate_json(dump_compact(plain), strict=True)
    except ValidationError as error:
        return [*_problems(error, kind, "", "{}")]
    return []


def parse_document(
    raw: bytes,
    file: str,
    kind: type[T],
    *,
    limit_bytes: int = 1 << 20,
    any_integer: bool = False,
    unknown_key_policy: UnknownKeyPolicy = "kept",
) -> Document[T]:
    """Parse bytes into a `kind`. Raises `ConfigError`, naming `file`. `any_integer`: also beyond 53 bits."""
    try:
        plain = parse(raw, limit_bytes=limit_bytes, allow_bom=True, any_integer=any_integer)
    except JsonProblem as error:
        hint = _syntax_hint(raw, error)
        line, column = (error.line, error.column) if error.line else _locate_flaw(raw)
        problem = Problem(error.message, file, line, column, error.pointer, hint, code=NOT_JSON)
        raise _config_error(problem) from error
    if not isinstance(plain, dict):
        message = f"expected an object, got {describe_kind(plain)}"
        raise _config_error(Problem(message, file, 1, 1, hint="start the file with {"))
    plain.pop("$schema", None)
    text = raw.decode("utf-8").removeprefix("\ufeff")
    if missing := [*_find_unloadable_keys(plain, kind, file, text)]:
        raise _config_error(*missing)
    unknown = [
        dataclasses.replace(problem, file=file, line=line, column=column, severity=severity)
        for problem in islice(unknown_keys(plain, kind), MAX_PROBLEMS)
        for line, column in [locate(text, problem.pointer)]
        for severity in ["error" if is_fatal(problem, kind, unknown_key_policy) else "warning"]
    ]
    value = _value(plain, kind, file, text, unknown)
    if any(problem.severity == "error" for problem in unknown):
        unknown.sort(key=lambda problem: problem.severity)  # the first error
        raise _config_error(*unknown)
    if raw.startswith(b"\xef\xbb\xbf"):
        bom = "the file must be UTF-8 without a byte order mark; the mark is ignored"
        unknown.append(Problem(bom, file, 1, 1, severity="warning", code="LMG-301"))
    return Document(value, raw, tuple(unknown))


def _find_unloadable_keys(plain: dict[str, Any], kind: Any, file: str, text: str) -> Iterator[Problem]:
    """Yield a problem for each extension key whose type cannot be loaded because the capability is missing."""
    for key, load in extension_keys(kind).items():
        if key in plain:
            try:
                load()
            except ConfigError as error:
                line, column = locate(text, f"/{key}")
                message = f'key "{key}" needs a capability that is not installed: {error.message}'
                yield Problem(message, file, line, column, f"/{key}", error.hint)


def _syntax_hint(raw: bytes, error: JsonProblem) -> str:
    """Return the fix of a JSON syntax error, guessed from the message and the text at the error."""
    lines = raw.decode("utf-8", "replace").removeprefix("\ufeff").split("\n")
    if not raw.strip():
        return "the file is empty; write an object: { ... }"
    if error.message.startswith("expect"):
        remaining_text = lines[error.line - 1][max(error.column, 1) - 1 :]
        for prefixes, hint in _TEXT_HINTS.items():
            if remaining_text.startswith(tuple(prefixes.split())):
                return hint
        if (error.line, error.column) == (1, 1):
            return "start the file with {"
    return next((hint for phrase, hint in _MESSAGE_HINTS.items() if phrase in error.message), "")


def _locate_flaw(raw: bytes) -> tuple[int, int]:
    """Return the line and column of a bracket too deep or of half a surrogate pair, or (0, 0)."""
    text, depth = raw.decode("utf-8", "replace").removeprefix("\ufeff"), 0
    for token in TOKEN.finditer(text):
        depth += (token[0] in "[{") - (token[0] in "]}")
        if depth > MAX_DEPTH or ("\\u" in token[0] and _has_half_a_pair(json.loads(token[0], strict=False))):
            return text.count("\n", 0, token.start()) + 1, token.start() - text.rfind("\n", 0, token.start())
    return 0, 0


def _has_half_a_pair(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


# by words of the message, the first match counts
_MESSAGE_HINTS = {
    "not UTF-8": "save the file as UTF-8",
    "duplicate key": "remove one of the two",
    "no comments": "remove it",
    "a comma before": "remove the comma",
    "is not JSON": "write a number, or null",
    "out of range": "write a smaller number",
    "delimiter": "add the missing comma or closing bracket before this place",
    "control character": "write \\n for a line end and \\t for a tab inside a text",
    "escape": "write two backslashes for one: \\\\",
    "surrogate": "write the character itself",
    "nesting": "take out a level of brackets",
    "extra data": "remove what follows the first value",
    "end of JSON": "close the quote, ] or }",
    "unterminated": "close the quote",
    "expected a key": 'write "key": value',
    "expecting value": "write a number, a text in double quotes, true, false, null, [...] or {...}",
}
_TEXT_HINTS = {
    ",": "remove this comma, or write what is missing before it",
    "\u201c \u201d \u201e \u00ab '": 'write straight double quotes: "',
    "True False None": "write true, false and null",
}
"""Syntax of other languages and word processors, with the JSON form."""


def _value(plain: dict[str, Any], kind: type[T], file: str, text: str, unknown: list[Problem]) -> T:
    """Return the typed value. Raise `ConfigError` with all violations."""
    try:
        value: T = fit_value(kind, plain)
    except TypeMismatch:
        from pydantic import ValidationError

        try:
            validated = adapter(cast(Any, kind)).validate_json(dump_compact(plain), strict=True)
            value = from_expanded(kind, validated)
        except ValidationError as error:
            problems = with_hints(tuple(_problems(error, kind, file, text)), unknown)
            raise ConfigError(summary(problems), problems=(*problems, *unknown)) from error
    return value


def _problems(error: ValidationError, kind: Any, file: str, text: str) -> Iterator[Problem]:
    """Yield the violations; the missing keys of an object form one problem."""
    missing_keys: dict[str, list[str]] = {}
    findings: list[tuple[str, str, str]] = []
    for item in error.errors(include_url=False):
        # without the names of a union's branches, which pydantic adds to the path of an error
        branches = ("str", "int", "float", "bool", "none")
        path = [part for part in item["loc"] if not (isinstance(part, str) and ("[" in part or part in branches))]
        pointer = "".join(f"/{part}" for part in path)
        parent, _, key = pointer.rpartition("/")
        if item["type"] != "missing":
            mismatch = item.get("ctx", {}).get("error")
            at, hint = (mismatch.at, mismatch.hint) if isinstance(mismatch, TypeMismatch) else ("", "")
            if item["type"] != "value_error":  # otherwise the message itself has the fix
                hint = suggest_value(resolve_type(kind, path), item["input"])
            sentence = describe_validation_error(item)
            if findings and findings[-1][0] == f"{pointer}{at}":  # another branch of a union: one sentence for both
                sentence = _join_alternatives(findings.pop()[1], sentence)
            findings.append((f"{pointer}{at}", sentence, hint))
        elif parent in missing_keys:
            missing_keys[parent].append(key)
        else:
            missing_keys[parent] = [key]
            findings.append((pointer, "", ""))
    for pointer, sentence, hint in findings[:MAX_PROBLEMS]:
        line, column = locate(text, pointer)
        if sentence:
            yield Problem(sentence, file, line, column, pointer, hint)
            continue
        parent = pointer.rpartition("/")[0]
        keys = missing_keys[parent]
        names = " and ".join(f'"{key}"' for key in keys)
        message = "this key is required" if len(keys) == 1 else "these keys are required"
        line, column = locate(text, parent)  # the object that should have them
        target = pointer if len(keys) == 1 else parent
        yield Problem(f"{message}: {names}", file, line, column, target, f"add {names} here")


def _join_alternatives(first: str, second: str) -> str:
    """Return one sentence for two allowed types.

    >>> _join_alternatives("expected text, got 5", "expected a list, got 5")
    'expected text or a list, got 5'
    """
    expected, separator, value = first.partition(", got ")
    other, _, other_value = second.removeprefix("expected ").partition(", got ")
    return f"{expected} or {other}{separator}{value}" if value == other_value else first


def _config_error(*problems: Problem) -> ConfigError:
    return ConfigError(summary(problems), problems=problems)


def unreadable_error(file: str, error: OSError) -> ConfigError:
    """Return the error for an unreadable file of the organisation."""
    hint = suggest_repair(error, "put a regular file in its place")
    return _config_error(Problem(unreadable_reason(error), file=file, hint=hint, code=NOT_JSON))


def unreadable_reason(error: OSError) -> str:
    """Return the reason a file of the organisation cannot be read, in plain words."""
    if error.errno in (errno.ELOOP, errno.EMLINK):
        return "expected a regular file, got a symbolic link"
    if error.errno in (errno.EINVAL, errno.EISDIR, errno.ENXIO):
        return "not a regular file"
    return f"cannot be read: {error.strerror or error}"
