"""The blocks of `config/org.json` that tools go by: `http`, `reminders`, `shell`."""

from __future__ import annotations

from dataclasses import dataclass, field

from lemming.capabilities.sandbox.settings import ShellSettings
from lemming.capabilities.toolbox.hosts import why_no_pattern
from lemming.kernel.files.fitting import Misfit, about
from lemming.kernel.org.config import Org


@dataclass(frozen=True, kw_only=True)
class Http:
    """Which servers the tools http_get and http_post may ask, and how long and how much they may answer."""

    hosts: list[str] = field(
        default_factory=list,
        metadata=about("Hosts that may be asked: example.org, *.example.org, example.org:8443. Empty: none."),
    )
    private_hosts: list[str] = field(
        default_factory=list,
        metadata=about(
            "Those of `hosts` that may be at addresses which are not public: this machine, a LAN."
        ),
    )
    timeout_s: float = field(
        default=30.0, metadata=about("A call ends after this, redirects included.", gt=0, le=3600)
    )
    max_bytes: int = field(
        default=1 << 20, metadata=about("Of an answer so much is taken.", ge=1024, le=16 << 20)
    )
    max_redirects: int = field(default=5, metadata=about("How many http_get follows.", ge=0, le=20))

    def __post_init__(self) -> None:
        for key, hosts in (("hosts", self.hosts), ("private_hosts", self.private_hosts)):
            for number, host in enumerate(hosts):
                why = why_no_pattern(host)
                if why or host not in self.hosts:
                    raise Misfit(f'{key}[{number}]: "{host}": {why or "it is not among http.hosts"}')


@dataclass(frozen=True, kw_only=True)
class Reminders:
    """How many notes for later an agent may leave itself with remind_me."""

    max_open: int = field(default=20, metadata=about("Reminders of one agent that may wait.", ge=0, le=1000))
    max_days: float = field(default=366.0, metadata=about("How far ahead they may be.", gt=0, le=36_600))


@dataclass(frozen=True, kw_only=True)
class OfOrg:
    """What `config/org.json` says of the tools that ship."""

    shell: ShellSettings = field(default_factory=ShellSettings)
    http: Http = field(default_factory=Http)
    reminders: Reminders = field(default_factory=Reminders)


def http_of(settings: Org) -> Http:
    """Return which servers may be asked; where the settings say nothing, none."""
    return settings.further.get("http") or Http()


def reminders_of(settings: Org) -> Reminders:
    """Return how many notes for later there may be."""
    return settings.further.get("reminders") or Reminders()
