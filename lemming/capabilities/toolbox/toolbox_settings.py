"""The blocks of `config/org.json` for the built-in tools: `http`, `reminders` and `shell`."""

from __future__ import annotations

from dataclasses import dataclass, field

from lemming.capabilities.toolbox.allowed_hosts import host_pattern_error
from lemming.ext import describe_field
from lemming.kernel.files.fast_decoder import TypeMismatch
from lemming.kernel.org.config import OrgSettings
from lemming.libraries.sandbox.sandbox_settings import ShellSettings


@dataclass(frozen=True, kw_only=True)
class HttpSettings:
    """The settings of http_get and http_post: allowed hosts, and limits on time and size."""

    hosts: list[str] = field(
        default_factory=list,
        metadata=describe_field("Allowed hosts: example.org, *.example.org, example.org:8443. Empty: none."),
    )
    private_hosts: list[str] = field(
        default_factory=list,
        metadata=describe_field("Hosts of `hosts` that may have private addresses: this machine, a LAN."),
    )
    timeout_s: float = field(
        default=30.0, metadata=describe_field("Timeout of a call in seconds, redirects included.", gt=0, le=3600)
    )
    max_bytes: int = field(
        default=1 << 20, metadata=describe_field("Maximum size of an answer in bytes.", ge=1024, le=16 << 20)
    )
    max_redirects: int = field(
        default=5, metadata=describe_field("Maximum number of redirects that http_get follows.", ge=0, le=20)
    )

    def __post_init__(self) -> None:
        for key, hosts in (("hosts", self.hosts), ("private_hosts", self.private_hosts)):
            for number, host in enumerate(hosts):
                reason = host_pattern_error(host)
                if reason or host not in self.hosts:
                    raise TypeMismatch(f'{key}[{number}]: "{host}": {reason or "the host must be in http.hosts"}')


@dataclass(frozen=True, kw_only=True)
class ReminderSettings:
    """The limits of reminders per agent."""

    max_open: int = field(
        default=20, metadata=describe_field("Maximum number of waiting reminders of one agent.", ge=0, le=1000)
    )
    max_days: float = field(default=366.0, metadata=describe_field("Maximum number of days ahead.", gt=0, le=36_600))


@dataclass(frozen=True, kw_only=True)
class ToolboxOrgSettings:
    """The settings of the built-in tools in `config/org.json`."""

    shell: ShellSettings = field(default_factory=ShellSettings)
    http: HttpSettings = field(default_factory=HttpSettings)
    reminders: ReminderSettings = field(default_factory=ReminderSettings)


def get_http_settings(settings: OrgSettings) -> HttpSettings:
    """Return the HTTP settings. Without settings, no host is allowed."""
    return settings.extensions.get("http") or HttpSettings()


def get_reminder_settings(settings: OrgSettings) -> ReminderSettings:
    """Return the reminder settings."""
    return settings.extensions.get("reminders") or ReminderSettings()
