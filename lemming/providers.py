"""Providers: model backends, shipped and custom. Everything in `lemming.kernel.providers`."""

from typing import Any

from lemming.kernel import providers
from lemming.kernel.providers import *  # noqa: F403 - a door: each name is that module's own


def __getattr__(name: str) -> Any:
    return getattr(providers, name)  # the providers that ship are imported when they are asked for
