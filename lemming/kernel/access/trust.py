"""What running an organisation does outside its folder, to be agreed to, and what is asked before it does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING

from lemming.kernel.access.code_guard import require_code_allowed
from lemming.kernel.base.errors import NotTrusted

if TYPE_CHECKING:
    from lemming.kernel.org.config import Config
    from lemming.kernel.org.organisation import Organisation
    from lemming.kernel.org.resume import Agent


@dataclass(frozen=True)
class Reach:
    """One thing that running does beyond plain turns, in a sentence that a person can agree to.

    `bound_to`: what exactly it is said of, by the name of a file or a setting, as SHA-256. `needs_agreement`:
    it is not done before somebody has agreed, also where nobody can be asked.
    """

    does: str
    bound_to: Mapping[str, str] = field(default_factory=dict)
    needs_agreement: bool = False


class Consent:
    """What is asked before the settings of a tick, and what they name, are used; by default nothing.

    Files of tools are loaded behind this one door: `require_sources` is called before any of them is.
    """

    def __init__(self, org: Organisation) -> None:
        self._org = org
        self.require: Callable[[Config, Mapping[str, Agent] | None], None] = lambda _, __: None
        """Raises `NotTrusted`; is given the agents too once they have been read."""
        self.files: Mapping[str, str] | None = None
        """The SHA-256 of each file whose code may run, in hex; None: whatever it says."""

    def require_sources(self, sources: Mapping[str, bytes]) -> None:
        """Raise `NotTrusted` for code, by file, that nobody agreed to, or that has changed since."""
        if self.files is None:
            require_code_allowed(self._org)
            return
        for file, source in sources.items():
            if self.files.get(file) != sha256(source).hexdigest():
                hint = "`lemming trust` shows it, `lemming trust --yes` agrees to it"
                raise NotTrusted(
                    "this code has changed, and nobody here has agreed to it", where=file, hint=hint
                )
