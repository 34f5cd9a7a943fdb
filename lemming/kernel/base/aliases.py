"""Old names of public classes, hooks, attributes and keyword arguments; `libraries.old_modules` has the modules.

Each old name still works and warns once per process with a DeprecationWarning. `old_names.toml` has the names; it is
read at the first use of an old name, so a program with the new names pays nothing. Rules: docs/capabilities.md.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

_PACKAGE = __name__.partition(".")[0]
_P = ParamSpec("_P")
_R = TypeVar("_R")
_T = TypeVar("_T")
_warned: set[str] = set()
_classes: list[type] = []
_state = {"has_descriptors": False}
_HOOKS_PAGE = "docs/capabilities.md"


@functools.cache
def load_table() -> Mapping[str, Any]:
    """Return the tables of `old_names.toml`, by name."""
    import tomllib

    return tomllib.loads(Path(__file__).with_name("old_names.toml").read_text("utf-8"))


def warn_once(old: str, new: str, *, depth: int) -> None:
    """Warn about the use of an old name, once per process. `depth`: frames between this call and the use."""
    if old not in _warned:
        _warned.add(old)
        message = f"{old} is now {new}"
        warnings.warn(message, DeprecationWarning, stacklevel=depth + 2)


# --- names of modules


def find_renamed(module: str, name: str) -> Any:
    """Return the value of a module under its old name. Raises: AttributeError for a name that the module never had."""
    if name.startswith("__"):
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    new_name = load_table()["names"].get(name, name)
    home = load_table()["places"].get(f"{module}.{new_name}", module)
    if (name, module) == (new_name, home) or not hasattr(import_module(home), new_name):
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    warn_once(f"{module}.{name}", new_name if home == module else f"{home}.{new_name}", depth=2)
    return getattr(sys.modules[home], new_name)


def old_names_of(module: str) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module with old names."""
    return lambda name: find_renamed(module, name)


# --- attributes and hooks


def accept_old_names(cls: type[_T]) -> type[_T]:
    """Class decorator: accept the old names of attributes, of constructor keywords, and of overridden hooks."""
    init_subclass = vars(cls).get("__init_subclass__")

    def adopt_subclass(subclass: Any, /, **options: Any) -> None:
        if not subclass.__module__.startswith(f"{_PACKAGE}."):
            _adopt(subclass)
        if init_subclass:
            init_subclass.__func__(subclass, **options)
        else:
            parent: Any = super(cls, subclass)
            parent.__init_subclass__(**options)

    set_attribute: Any = setattr  # these names belong to the type system, and mypy would follow them
    set_attribute(cls, "__getattr__", _get_renamed)
    set_attribute(cls, "__init_subclass__", classmethod(adopt_subclass))
    _classes.append(cls)
    if _state["has_descriptors"]:
        _add_descriptors(cls)
    return cls


def _get_renamed(value: Any, name: str) -> Any:
    if not name.startswith("_"):
        for cls in type(value).__mro__:
            if new_name := _members("members", cls).get(name):
                warn_once(f"{cls.__name__}.{name}", new_name, depth=1)
                return getattr(value, new_name)
    message = f"{type(value).__name__!r} object has no attribute {name!r}"
    for cls in type(value).__mro__:
        if name in (replaced := _members("replaced", cls)):
            message += f": it was replaced by {replaced[name] or 'nothing'}, see {_HOOKS_PAGE}"
    raise AttributeError(message, name=name, obj=value)


def _members(table: str, cls: type) -> Mapping[str, str]:
    members: Mapping[str, str] = load_table()[table].get(f"{cls.__module__}.{cls.__qualname__}", {})
    return members


def _adopt(cls: type) -> None:
    """Give the overrides of a plugin's class that have old names the new names too.

    Raises: TypeError for an override of a hook that is gone, which nothing would call.
    """
    for base in cls.__mro__[1:]:
        for old_name, replacement in _members("replaced", base).items():
            if hasattr(cls, old_name):
                fix = f"be written as {base.__name__}.{replacement}" if replacement else "be removed"
                raise TypeError(
                    f"{cls.__name__}.{old_name} must {fix}: the hook {old_name} was removed, see {_HOOKS_PAGE}"
                )
        for old_name, new_name in _members("members", base).items():
            override = vars(cls).get(old_name)
            if override is None or new_name in vars(cls):
                continue
            warn_once(f"{base.__name__}.{old_name}", new_name, depth=2)
            setattr(cls, new_name, override)
            if not _state["has_descriptors"]:  # a plugin with old names is loaded: all classes need the descriptors
                _state["has_descriptors"] = True
                for known_class in _classes:
                    _add_descriptors(known_class)


class _OldName:
    """Descriptor for an old name: for `super().old_name()` of an override, and for access through the class."""

    def __init__(self, base: type, old_name: str, new_name: str) -> None:
        self.base, self.old_name, self.new_name = base, old_name, new_name

    def __get__(self, value: Any, owner: type) -> Any:
        warn_once(f"{self.base.__name__}.{self.old_name}", self.new_name, depth=1)
        if value is None:
            return getattr(owner, self.new_name)
        overrides = [cls for cls in owner.__mro__ if not isinstance(vars(cls).get(self.old_name, self), _OldName)]
        return getattr(super(overrides[-1], value) if overrides else value, self.new_name)


class _OldField(_OldName):
    """The same for a field of a mutable value, which plugins also set."""

    def __set__(self, value: Any, content: Any) -> None:
        warn_once(f"{self.base.__name__}.{self.old_name}", self.new_name, depth=1)
        setattr(value, self.new_name, content)


def _add_descriptors(cls: type) -> None:
    for old_name, new_name in _members("members", cls).items():
        kind = _OldField if hasattr(cls, "__dataclass_fields__") else _OldName
        setattr(cls, old_name, kind(cls, old_name, new_name))


# --- keyword arguments


def accept_old_keywords(function: Callable[_P, _R], owner: str = "") -> Callable[_P, _R]:
    """Decorator: accept the old names of a function's keyword arguments. `owner`: the class of a constructor."""
    owner = owner or f"{function.__module__}.{function.__qualname__}"

    @functools.wraps(function)
    def call(*arguments: _P.args, **keywords: _P.kwargs) -> _R:
        try:
            return function(*arguments, **keywords)
        except TypeError:
            renamed = load_table()["keywords"].get(owner) or load_table()["members"].get(owner, {})
            if renamed.keys().isdisjoint(keywords):
                raise
            current: Any = {name: value for name, value in keywords.items() if name not in renamed}
            for name in keywords.keys() & renamed.keys():
                warn_once(f"{owner.rpartition('.')[2]}({name}=)", f"{renamed[name]}=", depth=1)
                current[renamed[name]] = keywords[name]
            return function(*arguments, **current)

    return call


def accept_old_fields(cls: type[_T]) -> type[_T]:
    """Class decorator for values that plugins make: accept the old names of the fields as keywords too."""
    constructor = "__new__" if issubclass(cls, tuple) else "__init__"
    accepting = accept_old_keywords(getattr(cls, constructor), f"{cls.__module__}.{cls.__qualname__}")
    setattr(cls, constructor, accepting if constructor == "__init__" else staticmethod(accepting))
    return accept_old_names(cls)
