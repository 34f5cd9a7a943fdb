"""Which hosts and which addresses tools may reach. Pure: nothing is asked."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv6Address, IPv6Network, ip_address

from lemming.kernel.base.integers import read_int, to_int

USUAL_PORTS = {"http": 80, "https": 443}
_NAT64 = IPv6Network("64:ff9b::/96")  # addresses that stand for those of IPv4 behind a translator: RFC 6052


def is_named(host: str, port: int, patterns: Iterable[str]) -> bool:
    """Return whether a list names a host: `example.org`, all below it as `*.example.org`, `host:8080`.

    A pattern without a port stands for 80 and 443.

    >>> is_named("www.example.org", 443, ["*.example.org"]), is_named("example.org", 8080, ["example.org"])
    (True, False)
    """
    host = host.lower().rstrip(".")
    for pattern in patterns:
        name, _, wanted = pattern.lower().rpartition(":") if ":" in pattern else (pattern.lower(), "", "")
        ports = {to_int(wanted)} if wanted.isdecimal() else set(USUAL_PORTS.values())
        fits = host.endswith(name[1:]) if name.startswith("*.") else host == name
        if fits and port in ports:
            return True
    return False


def why_no_pattern(pattern: str) -> str:
    """Return why a text names no host as `is_named` reads it; empty when it does.

    >>> why_no_pattern("https://example.org/a")
    'a host is named without https:// and without a path'
    """
    if "/" in pattern:
        return "a host is named without https:// and without a path"
    name, colon, port = pattern.rpartition(":") if ":" in pattern else (pattern, "", "")
    if colon and read_int(port, ge=1, le=65_535) is None:
        return "behind the colon a port is meant, 1 to 65535"
    bare = name.removeprefix("*.")
    if not bare or "*" in bare or any(letter.isspace() for letter in bare) or "@" in bare:
        return 'a host is meant, such as example.org, *.example.org or example.org:8443; "*" alone is none'
    return ""


def is_public(address: str) -> bool:
    """Return whether an address is one of the public internet, and no other in disguise.

    >>> is_public("93.184.215.14"), is_public("127.0.0.1"), is_public("::ffff:10.0.0.1")
    (True, False, False)
    """
    number = ip_address(address.partition("%")[0])  # without the zone of a link
    if isinstance(number, IPv6Address):
        hides_another = number.ipv4_mapped or number.sixtofour or number.teredo or number in _NAT64
        if hides_another or number.is_site_local:
            return False
    return number.is_global and not number.is_multicast and not number.is_reserved
