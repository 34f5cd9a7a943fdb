"""A hub on loopback that sends one file as the real one does, and misbehaves on cue."""

from __future__ import annotations

from dataclasses import dataclass, field

from loopback import Loopback, Quiet


@dataclass
class HubServer(Loopback):
    """The server, from `start` to `stop`. `cuts`: after how many bytes each answer breaks off, in order.

    `ignores_range`, `status`, `content`: what it does otherwise. `asked` holds the paths and ranges it got.
    """

    content: bytes
    path: str
    cuts: list[int] = field(default_factory=list)
    ignores_range: bool = False
    status: int = 0
    redirects: bool = True
    asked: list[tuple[str, str]] = field(default_factory=list)


class _Handler(Quiet):
    def do_GET(self) -> None:  # noqa: N802 - http.server calls it so
        hub, wanted = self.server.owner, self.headers.get("range", "")
        hub.asked.append((self.path, wanted))
        if self.path == hub.path and hub.redirects:
            return self._head(302, location=f"{hub.url}/cdn/bytes?signature=x")
        if hub.status:
            return self._head(hub.status)
        if self.path not in (hub.path, "/cdn/bytes?signature=x"):
            return self._head(404)
        begin = int(wanted.removeprefix("bytes=").rstrip("-") or 0) if not hub.ignores_range else 0
        if begin >= len(hub.content):
            return self._head(416)
        self._send(begin)
        return None

    def _send(self, begin: int) -> None:
        hub = self.server.owner
        rest = hub.content[begin:]
        whole = len(hub.content)
        ranged = {"content-range": f"bytes {begin}-{whole - 1}/{whole}"} if begin else {}
        self.send_response(206 if begin else 200)
        for name, value in {**ranged, "content-length": str(len(rest))}.items():
            self.send_header(name, value)
        self.end_headers()
        cut = hub.cuts.pop(0) if hub.cuts else len(rest)
        self.wfile.write(rest[:cut])
        self.close_connection = cut < len(rest)

    def _head(self, status: int, **headers: str) -> None:
        self.send_response(status)
        for name, value in {**headers, "content-length": "0"}.items():
            self.send_header(name, value)
        self.end_headers()


HubServer.handler = _Handler
