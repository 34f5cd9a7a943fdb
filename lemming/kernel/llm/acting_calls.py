"""Errors of calls that may act outside, as programs do: such a call is made at most once.

    announced < call < answer

The announcement is the record `model_started`. A call whose end is not recorded may have acted; a person decides
what happens next.
"""

from __future__ import annotations

from lemming.kernel.base.errors import MayHaveActed, ProviderError

MODELS_FILE = "config/models.json"
_NOT_REPEATED = "it may have acted, and is not run again by itself"
_HINT = (
    f'check its work, then ask again; if the program only prints text, set options.effects to "none" in {MODELS_FILE}'
)


def to_acting_error(error: ProviderError) -> MayHaveActed:
    """Return the error of a started call with an unknown effect, from the error of the backend."""
    hint = f"{error.hint}; {_HINT}".removeprefix("; ")
    acting_error = MayHaveActed(f"{error.message}; {_NOT_REPEATED}", where=error.where, hint=hint)
    acting_error.is_of_backend = error.is_of_backend
    return acting_error


def make_interrupted_error() -> MayHaveActed:
    """Return the error of a call that was announced and has no recorded end: the engine died during the call."""
    return MayHaveActed(f"the engine ended during a call of the model; {_NOT_REPEATED}", where=MODELS_FILE, hint=_HINT)
