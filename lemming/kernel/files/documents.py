"""Read a JSON file that a person may have edited into a typed value, or say exactly what is wrong with it.

A type is a frozen dataclass whose fields carry limits (`lemming.kernel.files.fitting.about`), or a
`dict[str, dataclass]`; nothing is coerced. Wrong values are errors. What keys are that the type does not
know, `Unknown` says: a file that limits, grants or says where words are sent takes none.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import time
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from lemming.kernel.base.errors import ConfigError, Problem
from lemming.kernel.base.jsontext import JsonProblem, compact, locate, nearest, parse
from lemming.kernel.files.fitting import (
    Misfit,
    fields_of,
    fit,
    further_key,
    further_keys,
    further_of,
    key_of,
    types_by_key,
)
from lemming.kernel.files.unknown import Unknown, keys_of, must_be_known, unknown_keys, with_hints

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

T = TypeVar("T")

NOT_JSON = "LMG-303"
GONE = "LMG-309"
_LOOKS_AT_HALF_A_FILE, _BETWEEN_LOOKS_S, _SAVED_IN_S = 5, 0.02, 1.0
MAX_PROBLEMS = 20  # of one kind in one file; finding the place of each takes a walk over the text


@dataclasses.dataclass(frozen=True)
class Document(Generic[T]):
    """A file that was read: its typed value, its bytes, and the warnings it gave rise to."""

    value: T
    raw: bytes
    warnings: tuple[Problem, ...] = ()


def once_saved(
    base: os.PathLike[str], read: Callable[[], T], problems_of: Callable[[T], Iterable[Problem]]
) -> T:
    """Return what `read` returns; read again for a moment while somebody is saving a file of it.

    An editor that empties or removes a file and then writes it is met at work: the file is no JSON and a
    moment old, or it has gone from its folder a moment ago.
    `problems_of` tells what is wrong with a result. Raises what `read` raises in the end.
    """
    for _ in range(_LOOKS_AT_HALF_A_FILE):
        try:
            found = read()
        except ConfigError as error:
            if not any(_is_being_saved(base, problem) for problem in error.problems):
                raise
        else:
            if not any(_is_being_saved(base, problem) for problem in problems_of(found)):
                return found
        time.sleep(_BETWEEN_LOOKS_S)
    return read()


def _is_being_saved(base: os.PathLike[str], problem: Problem) -> bool:
    if problem.code not in (NOT_JSON, GONE):
        return False
    path = f"{os.fspath(base)}/{problem.file}"
    # The name that goes changes its folder, and the folder that goes the one above.
    for place in (path, os.path.dirname(path), os.fspath(base)) if problem.code == GONE else (path,):
        with contextlib.suppress(OSError):
            return time.time() - os.stat(place).st_mtime < _SAVED_IN_S
    return False


@cache
def adapter(kind: Any) -> TypeAdapter[Any]:
    """Return the validator of a type; importing pydantic and building one is slow, so each is built once.

    Where a dataclass leaves keys to others (`fitting.further_of`), it has their types too.
    """
    from pydantic import TypeAdapter

    return TypeAdapter(whole_of(kind))


@cache
def whole_of(kind: Any) -> Any:
    """Return a type; of a dataclass that leaves keys to others, one like it that has them."""
    if not further_of(kind):
        return kind
    hints = types_by_key(kind)
    own = [(field.name, hints[key_of(field)], _copy_of(field)) for field in fields_of(kind)]
    others = [(it.field.name, it.type, _copy_of(it.field)) for _, it in further_keys(kind)]
    checks = {"__post_init__": kind.__post_init__} if hasattr(kind, "__post_init__") else {}
    namespace = {"__doc__": kind.__doc__, **checks}
    return dataclasses.make_dataclass(
        kind.__name__, [*own, *others], frozen=True, kw_only=True, namespace=namespace
    )


def _copy_of(field: dataclasses.Field[Any]) -> Any:
    told: Any = {"default": field.default, "default_factory": field.default_factory}
    given = {key: value for key, value in told.items() if value is not dataclasses.MISSING}
    return dataclasses.field(**given, metadata=field.metadata)


def as_validated(kind: Any, found: Any) -> Any:
    """Return what the validator of a type found as a value of the type."""
    if not further_of(kind):
        return found
    of_others = ((key, it, getattr(found, it.field.name)) for key, it in further_keys(kind))
    told = {key: value for key, it, value in of_others if value != it.default}
    return kind(**{field.name: getattr(found, field.name) for field in fields_of(kind)}, further=told)


def value_of(kind: Any, plain: Any) -> Any:
    """Return JSON values as a value of a type; raise `ValueError` that names the first thing that is wrong.

    Raises `TypeError` for a type whose values cannot come from JSON.
    """
    try:
        return fit(kind, plain)
    except Misfit:
        return _validated(kind, plain)


def _validated(kind: Any, plain: Any) -> Any:
    from pydantic import ValidationError
    from pydantic.errors import PydanticUserError

    try:
        return as_validated(kind, adapter(kind).validate_json(compact(plain), strict=True))
    except PydanticUserError as error:
        raise TypeError(str(error)) from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = "/".join(map(str, first["loc"]))
        raise ValueError(f"{place}: {first['msg']}" if place else first["msg"]) from error


def problems_of(kind: Any, plain: Any) -> list[Problem]:
    """Return all that is wrong with JSON values as a value of a type, in plain words, by their pointers."""
    from pydantic import ValidationError

    try:
        adapter(kind).validate_json(compact(plain), strict=True)
    except ValidationError as error:
        return [*_problems(error, kind, "", "{}")]
    return []


def read_text(
    raw: bytes,
    file: str,
    kind: type[T],
    *,
    limit_bytes: int = 1 << 20,
    any_integer: bool = False,
    unknown_keys_are: Unknown = "kept",
) -> Document[T]:
    """Return bytes as a value of `kind`; `file` names them in messages. Raises `ConfigError`.

    `any_integer`: those beyond 53 bits are taken too.
    """
    try:
        plain = parse(raw, limit_bytes=limit_bytes, allow_bom=True, any_integer=any_integer)
    except JsonProblem as error:
        hint = _hint_for_syntax(raw, error)
        problem = Problem(error.message, file, error.line, error.column, error.pointer, hint, code=NOT_JSON)
        raise _config_error(problem) from error
    if not isinstance(plain, dict):
        message = f"expected an object, found {_kind_of(plain)}"
        raise _config_error(Problem(message, file, 1, 1, hint="the file must start with {"))
    plain.pop("$schema", None)
    text = raw.decode("utf-8").removeprefix("\ufeff")
    if missing := [*_keys_without_a_reader(plain, kind, file, text)]:
        raise ConfigError(_summary(tuple(missing)), problems=tuple(missing))
    unknown = [
        dataclasses.replace(problem, file=file, line=line, column=column, severity=severity)
        for problem in islice(unknown_keys(plain, kind), MAX_PROBLEMS)
        for line, column in [locate(text, problem.pointer)]
        for severity in ["error" if must_be_known(problem, kind, unknown_keys_are) else "warning"]
    ]
    value = _value(plain, kind, file, text, unknown)
    if any(problem.severity == "error" for problem in unknown):
        unknown.sort(key=lambda problem: problem.severity)  # what stops it first
        raise ConfigError(_summary(tuple(unknown)), problems=tuple(unknown))
    if raw.startswith(b"\xef\xbb\xbf"):
        bom = "starts with a byte order mark; it is ignored"
        unknown.append(Problem(bom, file, 1, 1, severity="warning", code="LMG-301"))
    return Document(value, raw, tuple(unknown))


def _keys_without_a_reader(plain: dict[str, Any], kind: Any, file: str, text: str) -> Iterator[Problem]:
    """Yield a problem for each key whose type cannot be loaded: what should read it is not here."""
    for key, load in further_of(kind).items():
        if key in plain:
            try:
                load()
            except ConfigError as error:
                line, column = locate(text, f"/{key}")
                message, hint = f'nobody here reads "{key}": {error.message}', error.hint
                yield Problem(message, file, line, column, f"/{key}", hint)


def _hint_for_syntax(raw: bytes, error: JsonProblem) -> str:
    """Return what a person may have meant by what stands where JSON ends to be JSON; empty when unclear."""
    lines = raw.decode("utf-8", "replace").removeprefix("\ufeff").split("\n")
    if not raw.strip():
        return "the file is empty; it must hold an object: { ... }"
    if not error.line or error.line > len(lines):
        return ""
    rest = lines[error.line - 1][max(error.column, 1) - 1 :]
    for starts, hint in _MEANT.items():
        if rest.startswith(tuple(starts.split())):
            return hint
    if "delimiter" in error.message:
        return "a comma or a closing bracket is missing before this place"
    if "control character" in error.message:
        return "inside a text, write \\n for a line end and \\t for a tab"
    return "something is not closed: a quote, ] or }" if "end of JSON" in error.message else ""


_MEANT = {
    "\u201c \u201d \u201e \u00ab '": 'JSON takes only straight double quotes: "',
    "True False None": "JSON writes true, false and null",
}
"""What other languages and word processors write, and what JSON has for it."""


def _value(plain: dict[str, Any], kind: type[T], file: str, text: str, unknown: list[Problem]) -> T:
    """Return the typed value; raise `ConfigError` with all that is wrong with it."""
    try:
        value: T = fit(kind, plain)
    except Misfit:
        from pydantic import ValidationError

        try:
            found = adapter(cast(Any, kind)).validate_json(compact(plain), strict=True)
            value = as_validated(kind, found)
        except ValidationError as error:
            problems = with_hints(tuple(_problems(error, kind, file, text)), unknown)
            raise ConfigError(_summary(problems), problems=(*problems, *unknown)) from error
    return value


def _problems(error: ValidationError, kind: Any, file: str, text: str) -> Iterator[Problem]:
    """Yield what is wrong, the keys that one object lacks as one problem."""
    lacking: dict[str, list[str]] = {}
    found: list[tuple[str, str, str]] = []
    for item in error.errors(include_url=False):
        path = [part for part in item["loc"] if not _is_branch(part)]
        pointer = "".join(f"/{part}" for part in path)
        above, _, key = pointer.rpartition("/")
        if item["type"] != "missing":
            misfit = item.get("ctx", {}).get("error")
            at, hint = (misfit.at, misfit.hint) if isinstance(misfit, Misfit) else ("", "")
            if item["type"] != "value_error":  # else it says itself what to write
                hint = _instead(_type_at(kind, path), item["input"])
            found.append((f"{pointer}{at}", in_plain_words(item), hint))
        elif above in lacking:
            lacking[above].append(key)
        else:
            lacking[above] = [key]
            found.append((pointer, "", ""))
    for pointer, sentence, hint in found[:MAX_PROBLEMS]:
        line, column = locate(text, pointer)
        if sentence:
            yield Problem(sentence, file, line, column, pointer, hint)
            continue
        above = pointer.rpartition("/")[0]
        keys = lacking[above]
        names = " and ".join(f'"{key}"' for key in keys)
        what = "this key is required" if len(keys) == 1 else "these keys are required"
        line, column = locate(text, above)  # the object that should have them
        place = pointer if len(keys) == 1 else above
        yield Problem(f"{what}: {names}", file, line, column, place, f"add {names} here")


def _is_branch(part: Any) -> bool:
    """Pydantic puts the name of a union's branch into the path of an error; people do not want it."""
    return isinstance(part, str) and ("[" in part or part in ("str", "int", "float", "bool", "none"))


def in_plain_words(item: Any) -> str:
    """Return in plain words what one item of a `ValidationError` says is wrong."""
    kind, context, value = item["type"], item.get("ctx", {}), item.get("input")
    if kind in ("dataclass_type", "dict_type", "model_type"):
        return f"expected an object, found {_kind_of(value)}"
    if kind == "value_error":  # ours, which says what is wrong with more than a type
        return str(context["error"])
    if kind == "literal_error":
        return f"expected {context['expected']}, found {_show(value)}"
    expected = {
        "int_type": "a whole number", "int_parsing": "a whole number", "string_type": "text",
        "float_type": "a number", "float_parsing": "a number",
        "bool_type": "true or false", "list_type": "a list",
        "greater_than_equal": f"a number of at least {context.get('ge')}",
        "greater_than": f"a number above {context.get('gt')}",
        "less_than_equal": f"a number of at most {context.get('le')}",
    }.get(kind)  # fmt: skip
    return (
        f"expected {expected}, found {_show(value)}" if expected else f"{item['msg']}, found {_show(value)}"
    )


def _instead(wanted: Any, value: Any) -> str:
    """Return what to write for a value that is not of the type wanted; empty when that is unclear."""
    if isinstance(value, str) and (words := [word for word in typing.get_args(wanted) if type(word) is str]):
        return nearest(value, words)
    for candidate in (meant for meant in _meant(wanted, value) if type(meant) is not type(value)):
        with contextlib.suppress(Misfit):
            fit(wanted, candidate)
            return f"write {compact(candidate).decode()[:100]}"
    keys = keys_of(wanted) if _is_object(wanted) else ()
    return f"it is an object; its keys: {', '.join(keys)}" if keys else ""


def _is_object(wanted: Any) -> bool:
    return dataclasses.is_dataclass(wanted)


def _meant(wanted: Any, value: Any) -> Iterator[Any]:
    """Yield what a person may have meant by a value; not all of it need be of the type wanted."""
    if isinstance(value, str):
        with contextlib.suppress(JsonProblem):  # "3", "true"
            yield parse(value.encode())
    if isinstance(value, (str, int, float)):
        yield [value]
        if not isinstance(value, bool):
            yield str(value)
        if _is_object(wanted):
            yield {next(iter(keys_of(wanted))): value}
    if isinstance(value, list) and value and all(isinstance(line, str) for line in value):
        yield "\n".join(value)


def _type_at(kind: Any, path: Sequence[str | int]) -> Any:
    """Return the type that a value at a place of a file has, without `None`."""
    for part in path:
        if _is_object(kind):
            key = str(part)
            kind = further_key(kind, key).type if key in further_of(kind) else types_by_key(kind)[key]
        elif args := typing.get_args(kind):
            kind = args[-1]
        if typing.get_origin(kind) in (typing.Union, types.UnionType):
            kind = next(inner for inner in typing.get_args(kind) if inner is not type(None))
    return kind


def _kind_of(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def _show(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return _kind_of(value)
    if isinstance(value, str):
        return f'"{value[:60]}"'
    return compact(value).decode()[:60]


def _summary(problems: tuple[Problem, ...]) -> str:
    first = str(problems[0])
    return first if len(problems) == 1 else f"{first} (and {len(problems) - 1} more)"


def _config_error(problem: Problem) -> ConfigError:
    return ConfigError(str(problem), problems=(problem,))


def unreadable(file: str, error: OSError) -> ConfigError:
    """Return the error that says in plain words why a file of the organisation cannot be read."""
    return _config_error(Problem(why_unreadable(error), file=file, code=NOT_JSON))


def why_unreadable(error: OSError) -> str:
    """Return in plain words why a file of the organisation cannot be read."""
    if error.errno in (errno.ELOOP, errno.EMLINK):
        return "symbolic link refused: a file of the organisation must be a regular file"
    return {
        errno.EINVAL: "not a regular file",
        errno.EISDIR: "not a regular file",
        errno.ENXIO: "not a regular file",
    }.get(error.errno or 0, f"cannot be read: {error.strerror or error}")
