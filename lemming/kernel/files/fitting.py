"""Dataclasses from plain JSON, without a validator, as long as everything fits exactly. Pure.

Nearly every file that is read is as it should be. `fit` builds the value of such a file; for anything else,
and for any type it does not know, it raises `Misfit`, and pydantic, whose import and schemas cost more than
a whole idle tick, says what is wrong. `fit` must never accept what pydantic's strict mode refuses.
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

LARGEST_AMOUNT = 1e12
"""The most credits, tokens or dollars that any file may say: sums of such stay far from where floats end."""

Fitter = Callable[[Any], Any]


class Misfit(ValueError):
    """The value is not, beyond doubt, one of this type.

    `at` is a JSON pointer to the part of it that is wrong, and `hint` what to write there.
    """

    def __init__(self, message: str = "", *, at: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.at, self.hint = at, hint


def about(description: str, **limits: float) -> dict[str, Any]:
    """Return the metadata of a dataclass field: what a schema says of it, and the limits of its value.

    The limits are pydantic's, which reads the metadata too: `ge`, `gt`, `le`, `min_length`, `max_length`.
    """
    return {"description": description, **limits}


def keyed(key: str, description: str, **limits: float) -> dict[str, Any]:
    """Return the metadata of a field whose key in files is a word that Python keeps for itself."""
    return {**about(description, **limits), "alias": key}


INSIDE: Mapping[str, bool] = {"is_inside": True}
"""The metadata of a dataclass field that no file has: what `FURTHER` keys of the file say, by key."""


class Key(NamedTuple):
    """A key that a dataclass leaves to others: the type of its value, and the field that says so."""

    type: Any
    field: dataclasses.Field[Any]

    @property
    def default(self) -> Any:
        """What stands for a value where a file has none."""
        factory = self.field.default_factory
        return self.field.default if factory is dataclasses.MISSING else factory()


def further_of(kind: Any) -> Mapping[str, Callable[[], Any]]:
    """Return the keys whose types a dataclass does not know, each with what loads the dataclass that does.

    They stand in the class's `FURTHER`. Their values go into its field `further`, but for defaults.
    """
    found: Mapping[str, Callable[[], Any]] = getattr(kind, "FURTHER", {})
    return found


@cache
def further_key(kind: Any, key: str) -> Key:
    """Return a key that a dataclass leaves to others; raise `ConfigError` where its type is not here."""
    holder = further_of(kind)[key]()
    return Key(types_by_key(holder)[key], next(it for it in fields_of(holder) if key_of(it) == key))


def further_keys(kind: Any) -> Iterator[tuple[str, Key]]:
    """Yield the keys that a dataclass leaves to others, as far as their types are here."""
    for key in further_of(kind):
        with contextlib.suppress(ConfigError):
            yield key, further_key(kind, key)


def written(value: Any) -> Any:
    """Return the value of such a key as files write it: `plain` of what has that, all fields of a class."""
    if isinstance(value, list):
        return [*map(written, value)]
    if hasattr(value, "plain"):
        return value.plain
    is_object = dataclasses.is_dataclass(value) and not isinstance(value, type)
    return dataclasses.asdict(value) if is_object else value


def fields_of(kind: Any) -> list[dataclasses.Field[Any]]:
    """Return the fields of a dataclass that files have."""
    return [field for field in dataclasses.fields(kind) if not field.metadata.get("is_inside")]


def key_of(field: dataclasses.Field[Any]) -> str:
    """Return the key that a field has in files."""
    return str(field.metadata.get("alias", field.name))


def fit(kind: Any, plain: Any) -> Any:
    """Return JSON values as a value of `kind`; keys that a dataclass does not have are passed over.

    Raises `Misfit`.

    >>> fit(dict[str, float | None], {"a": 1, "b": None})
    {'a': 1.0, 'b': None}
    """
    return _fitter(kind)(plain)


def fitter_of(kind: Any, told: Mapping[str, Any]) -> Fitter:
    """Return the function that builds values of a type, within the limits that `about` told."""
    limits = {name: limit for name, limit in told.items() if name not in ("alias", "description")}
    return _within(_fitter(kind), limits)


@cache
def type_hints(kind: Any) -> Mapping[str, Any]:
    """Return the types of a dataclass's fields by name."""
    return typing.get_type_hints(kind)


@cache
def types_by_key(kind: Any) -> Mapping[str, Any]:
    """Return the types of a dataclass's fields by the keys that they have in files."""
    return {key_of(field): type_hints(kind)[field.name] for field in fields_of(kind)}


@cache
def _fitter(kind: Any) -> Fitter:
    """Return the function that builds values of a type; it refuses all values of a type not known here."""
    if kind is Any:
        return lambda value: value
    if kind is float:
        return _fit_float
    if kind in (str, int, bool, type(None)):
        return lambda value: value if type(value) is kind else _refuse()
    if dataclasses.is_dataclass(kind):
        return _fitter_of_dataclass(kind)
    inner = typing.get_args(kind)
    match typing.get_origin(kind):
        case typing.Literal if all(type(word) is str for word in inner):
            return lambda value: value if type(value) is str and value in inner else _refuse()
        case types.UnionType | typing.Union if len(inner) == 2 and inner[1] is type(None):
            fit_inner = _fitter(inner[0])
            return lambda value: None if value is None else fit_inner(value)
        case types.UnionType | typing.Union:
            return _fitter_of_union([_fitter(branch) for branch in inner])
        case builtin if builtin in (list, frozenset) or (builtin is tuple and inner[1:] == (...,)):
            fit_item = _fitter(inner[0])
            return lambda value: builtin(map(fit_item, value)) if type(value) is list else _refuse()
        case mapping if mapping in (dict, Mapping) and inner[0] is str:
            fit_value = _fitter(inner[1])
            return lambda value: (
                {key: fit_value(item) for key, item in value.items()} if type(value) is dict else _refuse()
            )
    return lambda _: _refuse()


def _refuse() -> Any:
    raise Misfit


def _fitter_of_union(fitters: list[Fitter]) -> Fitter:
    def fit_branch(value: Any) -> Any:
        fitted = []
        for fitter in fitters:
            with contextlib.suppress(Misfit):
                fitted.append(fitter(value))
        return fitted[0] if len(fitted) == 1 else _refuse()  # which of two is pydantic's to say

    return fit_branch


def _fit_float(value: Any) -> float:
    if type(value) is float:
        return value
    try:
        return float(value) if type(value) is int else _refuse()
    except OverflowError as error:
        raise Misfit from error


def _fitter_of_dataclass(kind: Any) -> Fitter:
    hints = type_hints(kind)
    fields = {
        key_of(field): (field.name, fitter_of(hints[field.name], field.metadata)) for field in fields_of(kind)
    }
    further = further_of(kind)

    def fit_object(value: Any) -> Any:
        if type(value) is not dict:
            _refuse()
        found = ((*fields[key], item) for key, item in value.items() if key in fields)
        told: dict[str, Any] = {}
        if not further.keys().isdisjoint(value):
            told["further"] = _further_in(kind, value)
        try:
            return kind(**{name: fitter(item) for name, fitter, item in found}, **told)
        except TypeError as error:  # a key without a default is missing
            raise Misfit from error

    return fit_object


def _further_in(kind: Any, value: dict[str, Any]) -> dict[str, Any]:
    fitted = {key: _further_fitter(kind, key)(value[key]) for key in further_of(kind) if key in value}
    return {key: it for key, it in fitted.items() if it != further_key(kind, key).default}


@cache
def _further_fitter(kind: Any, key: str) -> Fitter:
    found = further_key(kind, key)
    return fitter_of(found.type, found.field.metadata)


def _within(fitter: Fitter, limits: dict[str, Any]) -> Fitter:
    """Return a fitter that refuses what is beyond the limits of a field; null has none."""
    if not limits:
        return fitter
    if not limits.keys() <= _ALLOWS.keys():
        return lambda _: _refuse()

    def fit_limited(value: Any) -> Any:
        fitted = fitter(value)
        is_within = fitted is None or all(_ALLOWS[name](fitted, limit) for name, limit in limits.items())
        return fitted if is_within else _refuse()

    return fit_limited


_ALLOWS: dict[str, Callable[[Any, Any], bool]] = {
    "ge": operator.ge,
    "gt": operator.gt,
    "le": operator.le,
    "min_length": lambda value, least: len(value) >= least,
    "max_length": lambda value, most: len(value) <= most,
}
