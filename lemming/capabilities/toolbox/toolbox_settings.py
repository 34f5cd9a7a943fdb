"""The blocks of `config/org.json` for the built-in tools: `http`, `reminders` and `shell`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from ipaddress import IPv6Address, IPv6Network, ip_address

from lemming.kernel.base.integers import parse_int, to_int
from lemming.kernel.files.fast_decoder import TypeMismatch, make_field
from lemming.kernel.org.config import OrgSettings
from lemming.libraries.sandbox.sandbox_settings import ShellSettings

USUAL_PORTS = {"http": 80, "https": 443}
_NAT64 = IPv6Network("64:ff9b::/96")  # IPv6 addresses that stand for IPv4 behind a translator: RFC 6052


def matches_host(host: str, port: int, patterns: Iterable[str]) -> bool:
    """Return True if a pattern matches a host:

    `example.org`, `*.example.org` for all subdomains, `host:8080`.

    A pattern without a port matches ports 80 and 443.

    >>> matches_host("www.example.org", 443, ["*.example.org"]), matches_host("example.org", 8080, ["example.org"])
    (True, False)
    """
    host = host.lower().rstrip(".")
    for pattern in patterns:
        name, _, port_text = pattern.lower().rpartition(":") if ":" in pattern else (pattern.lower(), "", "")
        ports = {to_int(port_text)} if port_text.isdecimal() else set(USUAL_PORTS.values())
        is_match = host.endswith(name[1:]) if name.startswith("*.") else host == name
        if is_match and port in ports:
            return True
    return False


def host_pattern_error(pattern: str) -> str:
    """Return the reason a text is no valid host pattern, or an empty text.

    >>> host_pattern_error("https://example.org/a")
    'a host must be written without https:// and without a path'
    """
    if "/" in pattern:
        return "a host must be written without https:// and without a path"
    name, colon, port = pattern.rpartition(":") if ":" in pattern else (pattern, "", "")
    if colon and parse_int(port, ge=1, le=65_535) is None:
        return "a port must be 1 to 65535"
    bare = name.removeprefix("*.")
    if not bare or "*" in bare or any(letter.isspace() for letter in bare) or "@" in bare:
        return 'expected a host such as example.org, *.example.org or example.org:8443; "*" alone is not allowed'
    return ""


def is_public(address: str) -> bool:
    """Return True if an address belongs to the public internet and embeds no other address.

    >>> is_public("93.184.215.14"), is_public("127.0.0.1"), is_public("::ffff:10.0.0.1")
    (True, False, False)
    """
    number = ip_address(address.partition("%")[0])  # without the zone of a link
    if isinstance(number, IPv6Address):
        embeds_address = number.ipv4_mapped or number.sixtofour or number.teredo or number in _NAT64
        if embeds_address or number.is_site_local:
            return False
    return number.is_global and not number.is_multicast and not number.is_reserved


@dataclass(frozen=True, kw_only=True)
class HttpSettings:
    """The settings of http_get and http_post: allowed hosts, and limits on time and size."""

    hosts: list[str] = make_field(list, "Allowed hosts: example.org, *.example.org, example.org:8443. Empty: none.")
    private_hosts: list[str] = make_field(
        list, "Hosts of `hosts` that may have private addresses: this machine, a LAN."
    )
    timeout_s: float = make_field(30.0, "Timeout of a call in seconds, redirects included.", gt=0, le=3600)
    max_bytes: int = make_field(1 << 20, "Maximum size of an answer in bytes.", ge=1024, le=16 << 20)
    max_redirects: int = make_field(5, "Maximum number of redirects that http_get follows.", ge=0, le=20)

    def __post_init__(self) -> None:
        for key, hosts in (("hosts", self.hosts), ("private_hosts", self.private_hosts)):
            for number, host in enumerate(hosts):
                reason = host_pattern_error(host)
                if reason or host not in self.hosts:
                    raise TypeMismatch(f'{key}[{number}]: "{host}": {reason or "the host must be in http.hosts"}')


@dataclass(frozen=True, kw_only=True)
class ReminderSettings:
    """The limits of reminders per agent."""

    max_open: int = make_field(20, "Maximum number of waiting reminders of one agent.", ge=0, le=1000)
    max_days: float = make_field(366.0, "Maximum number of days ahead.", gt=0, le=36_600)


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
