"""Fast conversion of plain JSON into dataclasses, for values that fit exactly. Pure.

Nearly every file is valid. `fit_value` builds the value of such a file; for anything else, and for any
unknown type, it raises `TypeMismatch`, and pydantic, whose import and schemas cost more than a whole idle
tick, describes the violation. `fit_value` must never accept a value which pydantic's strict mode refuses.
"""

from __future__ import annotations

import contextlib
import dataclasses
import operator
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from lemming.kernel.base.errors import ConfigError

MAX_AMOUNT = 1e12
"""Maximum amount in any file: sums of such amounts stay far from the limit of floats."""

Fitter = Callable[[Any], Any]


class TypeMismatch(ValueError):
    """Raised for a possibly wrong type. `at`: JSON pointer to the wrong part. `hint`: a suggested correction."""

    def __init__(self, message: str = "", *, at: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.at, self.hint = at, hint


def describe_field(description: str, *, key: str = "", **limits: float) -> dict[str, Any]:
    """Return the metadata of a dataclass field: the description in a schema, and the limits of the value.

    `key`: the key in files, if it is a Python keyword. The limits are pydantic's, which reads the metadata too:
    `ge`, `gt`, `le`, `min_length`, `max_length`.
    """
    return {"description": description, **limits, **({"alias": key} if key else {})}


def make_field(default: Any, description: str, *, key: str = "", **limits: float) -> Any:
    """Return a dataclass field with a default: a value, or a function that makes it, such as `list`.

    `description`, `key`, `limits`: as in `describe_field`.
    """
    metadata = describe_field(description, key=key, **limits)
    if callable(default):
        return dataclasses.field(default_factory=default, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


INTERNAL_FIELD: Mapping[str, bool] = {"is_inside": True}
"""Metadata of a field outside the file: values of further keys in the file, by key."""


class ExtensionKey(NamedTuple):
    """A key that a capability adds to a dataclass: the type of the value, and the field that declares it."""

    type: Any
    field: dataclasses.Field[Any]

    @property
    def default(self) -> Any:
        """The value used if a file lacks the key."""
        factory = self.field.default_factory
        return self.field.default if factory is dataclasses.MISSING else factory()


def extension_keys(kind: Any) -> Mapping[str, Callable[[], Any]]:
    """Return the extension keys of a dataclass, each with the loader of the declaring dataclass.

    They are listed in the class's `FURTHER`. Their values are stored in the field `extensions`, except for
    defaults.
    """
    loaders: Mapping[str, Callable[[], Any]] = getattr(kind, "FURTHER", {})
    return loaders


@cache
def get_extension_key(kind: Any, key: str) -> ExtensionKey:
    """Return an extension key of a dataclass. Raise `ConfigError` if the capability is missing."""
    extension_class = extension_keys(kind)[key]()
    return ExtensionKey(
        field_types(extension_class)[key],
        next(field for field in file_fields(extension_class) if file_key(field) == key),
    )


def load_extension_keys(kind: Any) -> Iterator[tuple[str, ExtensionKey]]:
    """Yield the extension keys of a dataclass whose types are available."""
    for key in extension_keys(kind):
        with contextlib.suppress(ConfigError):
            yield key, get_extension_key(kind, key)


def to_file_value(value: Any) -> Any:
    """Return the value of an extension key as written to files: `file_value` if it has one, else all fields."""
    if isinstance(value, list):
        return [*map(to_file_value, value)]
    if hasattr(value, "file_value"):
        return value.file_value
    is_object = dataclasses.is_dataclass(value) and not isinstance(value, type)
    return dataclasses.asdict(value) if is_object else value


def file_fields(kind: Any) -> list[dataclasses.Field[Any]]:
    """Return the fields of a dataclass that appear in files."""
    return [field for field in dataclasses.fields(kind) if not field.metadata.get("is_inside")]


def file_key(field: dataclasses.Field[Any]) -> str:
    """Return the key of a field in files."""
    return str(field.metadata.get("alias", field.name))


def fit_value(kind: Any, plain: Any) -> Any:
    """Return JSON values as a value of `kind`; keys unknown to a dataclass are ignored.

    Raises `TypeMismatch`.

    >>> fit_value(dict[str, float | None], dict(a=1, b=None))
    {'a': 1.0, 'b': None}
    """
    return _make_fitter(kind)(plain)


def limited_fitter(kind: Any, metadata: Mapping[str, Any]) -> Fitter:
    """Return a function building values of a type within the limits in a field's metadata; null has no limits."""
    fitter = _make_fitter(kind)
    limits = {name: limit for name, limit in metadata.items() if name not in ("alias", "description")}
    if not limits:
        return fitter
    if not limits.keys() <= _LIMIT_CHECKS.keys():
        return lambda _: _reject_value()

    def fit_limited(value: Any) -> Any:
        fitted = fitter(value)
        is_within = fitted is None or all(_LIMIT_CHECKS[name](fitted, limit) for name, limit in limits.items())
        return fitted if is_within else _reject_value()

    return fit_limited


@cache
def field_types(kind: Any) -> Mapping[str, Any]:
    """Return the types of a dataclass's fields by file key."""
    hints = typing.get_type_hints(kind)
    return {file_key(field): hints[field.name] for field in file_fields(kind)}


@cache
def _make_fitter(kind: Any) -> Fitter:
    """Return a function building values of a type; for an unknown type, the function refuses all values."""
    if kind is Any:
        return lambda value: value
    if kind is float:
        return _fit_float
    if kind in (str, int, bool, type(None)):
        return lambda value: value if type(value) is kind else _reject_value()
    if dataclasses.is_dataclass(kind):
        return _dataclass_fitter(kind)
    inner = typing.get_args(kind)
    match typing.get_origin(kind):
        case typing.Literal if all(type(option) is str for option in inner):
            return lambda value: value if type(value) is str and value in inner else _reject_value()
        case types.UnionType | typing.Union if len(inner) == 2 and inner[1] is type(None):
            fit_inner = _make_fitter(inner[0])
            return lambda value: None if value is None else fit_inner(value)
        case types.UnionType | typing.Union:
            return _union_fitter([_make_fitter(branch) for branch in inner])
        case builtin if builtin in (list, frozenset) or (builtin is tuple and inner[1:] == (...,)):
            fit_item = _make_fitter(inner[0])
            return lambda value: builtin(map(fit_item, value)) if type(value) is list else _reject_value()
        case mapping if mapping in (dict, Mapping) and inner[0] is str:
            fit_value = _make_fitter(inner[1])
            return lambda value: (
                {key: fit_value(item) for key, item in value.items()} if type(value) is dict else _reject_value()
            )
    return lambda _: _reject_value()


def _reject_value() -> Any:
    raise TypeMismatch


def _union_fitter(fitters: list[Fitter]) -> Fitter:
    def fit_branch(value: Any) -> Any:
        fitted = []
        for fitter in fitters:
            with contextlib.suppress(TypeMismatch):
                fitted.append(fitter(value))
        return fitted[0] if len(fitted) == 1 else _reject_value()  # which of two is pydantic's to say

    return fit_branch


def _fit_float(value: Any) -> float:
    if type(value) is float:
        return value
    try:
        return float(value) if type(value) is int else _reject_value()
    except OverflowError as error:
        raise TypeMismatch from error


def _dataclass_fitter(kind: Any) -> Fitter:
    hints, keys = field_types(kind), {file_key(field): field for field in file_fields(kind)}
    fields = {key: (field.name, limited_fitter(hints[key], field.metadata)) for key, field in keys.items()}
    extension_loaders = extension_keys(kind)

    def fit_object(value: Any) -> Any:
        if type(value) is not dict:
            _reject_value()
        known_items = ((*fields[key], item) for key, item in value.items() if key in fields)
        extra_arguments: dict[str, Any] = {}
        if not extension_loaders.keys().isdisjoint(value):
            extra_arguments["extensions"] = _fit_extensions(kind, value)
        try:
            return kind(**{name: fitter(item) for name, fitter, item in known_items}, **extra_arguments)
        except TypeError as error:  # a key without a default is missing
            raise TypeMismatch from error

    return fit_object


def _fit_extensions(kind: Any, value: dict[str, Any]) -> dict[str, Any]:
    fitted = {key: _extension_fitter(kind, key)(value[key]) for key in extension_keys(kind) if key in value}
    return {key: item for key, item in fitted.items() if item != get_extension_key(kind, key).default}


@cache
def _extension_fitter(kind: Any, key: str) -> Fitter:
    extension_key = get_extension_key(kind, key)
    return limited_fitter(extension_key.type, extension_key.field.metadata)


_LIMIT_CHECKS: dict[str, Callable[[Any, Any], bool]] = {
    "ge": operator.ge,
    "gt": operator.gt,
    "le": operator.le,
    "min_length": lambda value, least: len(value) >= least,
    "max_length": lambda value, most: len(value) <= most,
}
