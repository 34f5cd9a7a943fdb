"""The edge of one channel: whatever goes wrong in it is its own trouble, and no other's."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from lemming.kernel.base.errors import DiskError, ProviderError, Unavailable
from lemming.kernel.base.redaction.secrets import excerpt


@contextlib.contextmanager
def edge() -> Iterator[None]:
    """Turn what the block raises into a `ProviderError`, but for a disk that refuses: that is everybody's."""
    try:
        yield
    except ProviderError:
        raise
    except Exception as error:
        if isinstance(error, DiskError) and not error.concerns_one_file:
            raise
        raise Unavailable(excerpt(f"{type(error).__name__}: {error}", 400)) from error
