"""A systemd or launchd service, as text. Formats: systemd.service(5), systemd.syntax(7), launchd.plist(5)."""

from __future__ import annotations

import json
import plistlib
import re
from dataclasses import dataclass
from typing import Literal

from lemming.kernel.base.version import __version__

Form = Literal["systemd", "launchd"]

WATCHDOG_S, RESTART_S, STOP_S = 90, 10, 180
NO_RESTART = "2 7"  # a wrong command line or folder, or damaged files: needs a person
# Not 3: unreadable settings may be half saved, or missing during a `git checkout`.
_INVALID_CHARS = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True)
class ServiceUnit:
    """Description of a service: the organisation's folder, the program's command line, and the keys file.

    `keys_file` holds NAME=VALUE lines and may be missing. launchd writes the output to `log_file`. `health`
    is the port of /healthz, and `serve` the port of http channels (mail included); None disables each.
    """

    name: str
    folder: str
    program: list[str]
    options: list[str]
    keys_file: str
    log_file: str
    health: int | None = None
    serve: int | None = None

    @property
    def command_words(self) -> list[str]:
        """The command line."""
        serve = [] if self.serve is None else ["--serve", str(self.serve)]
        health = [] if self.health is None else ["--health", str(self.health)]
        return [*self.program, "-C", self.folder, "run-forever", *self.options, *serve, *health]

    @property
    def file_name(self) -> str:
        """The file name of the systemd unit."""
        return f"lemming-{self.name}.service"

    @property
    def launchd_label(self) -> str:
        """The label of the launchd agent."""
        return f"org.lemming.{self.name}"


def make_service_name(folder_name: str) -> str:
    """Return a service name for an organisation's folder.

    >>> make_service_name("My News (2)"), make_service_name("...")
    ('my-news-2', 'org')
    """
    return _INVALID_CHARS.sub("-", folder_name.lower()).strip("-")[:60] or "org"


def render_unit(service: ServiceUnit, form: Form) -> str:
    """Return the service file for systemd or launchd."""
    return {"systemd": render_systemd_unit, "launchd": render_launchd_agent}[form](service)


def render_systemd_unit(service: ServiceUnit) -> str:
    """Return a unit for the user's systemd.

    An exit status in need of a person ends the service; after other failures systemd restarts the service, at
    most six times in ten minutes.
    """
    return f"""\
# LeMMing {__version__}, `lemming service`; for the organisation in
{_format_marker(service.folder)}
[Unit]
Description=LeMMing organisation {_escape_line(service.folder)}
Documentation=man:systemd.service(5)
StartLimitIntervalSec=600
StartLimitBurst=6

[Service]
Type=notify
NotifyAccess=main
ExecStart={" ".join(map(_quote_word, service.command_words))}
EnvironmentFile=-{_escape_line(service.keys_file)}
Environment=PYTHONUNBUFFERED=1
Restart=always
RestartSec={RESTART_S}
RestartPreventExitStatus={NO_RESTART}
WatchdogSec={WATCHDOG_S}
WatchdogSignal=SIGKILL
TimeoutStartSec=600
TimeoutStopSec={STOP_S}
KillMode=mixed

[Install]
WantedBy=default.target
"""


def is_unit_for_folder(text: str, folder: str) -> bool:
    """Return True if a unit belongs to the organisation in this folder."""
    return _format_marker(folder) in text.splitlines()


def render_launchd_agent(service: ServiceUnit) -> str:
    """Return a property list for launchd. A shell loads the keys file, because launchd cannot."""
    script = 'set -a; [ -r "$1" ] && . "$1"; set +a; shift; exec "$@"'
    properties = {
        "Label": service.launchd_label,
        "ProgramArguments": ["/bin/sh", "-c", script, "lemming", service.keys_file, *service.command_words],
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": RESTART_S,
        "ExitTimeOut": STOP_S,
        "ProcessType": "Background",
        "StandardOutPath": service.log_file,
        "StandardErrorPath": service.log_file,
    }
    return plistlib.dumps(properties, sort_keys=False).decode()


def _format_marker(folder: str) -> str:
    return f"# {json.dumps(folder)}"


def _quote_word(argument: str) -> str:
    """Quote an argument of a command line for systemd.

    >>> print(_quote_word("/srv/50% $off"))
    "/srv/50%% $$off"
    """
    escaped = argument.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"' if re.search(r"[^\w@%+=:,./-]", argument) else escaped


def _escape_line(text: str) -> str:
    return text.replace("%", "%%").replace("\n", " ")
