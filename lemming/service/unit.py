"""An organisation as a service of the machine: a systemd unit, a launchd agent, a compose file. Pure text.

Formats: systemd.service(5), systemd.syntax(7), launchd.plist(5), the Compose specification.
"""

from __future__ import annotations

import json
import plistlib
import re
from dataclasses import dataclass
from typing import Literal

from lemming.kernel.base.version import __version__

Form = Literal["systemd", "launchd", "compose"]

WATCHDOG_S, RESTART_S, STOP_S = 90, 10, 180
NO_RESTART = "2 7"  # a wrong command line or folder, damaged files: for a person
# Not 3: settings that cannot be read may be half saved, or gone for the length of a `git checkout`.
_UNFIT = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True)
class Service:
    """What is to run: the organisation's folder, the program's words for it, and where its keys are.

    `keys_file` holds NAME=VALUE lines and need not be there; into `log_file` launchd writes what it says.
    `health` is the port of /healthz, `serve` that of http channels (it sees to mail too); None for none.
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
    def words(self) -> list[str]:
        """The command line."""
        health = [] if self.health is None else ["--health", str(self.health)]
        return [*self.program, "-C", self.folder, "run-forever", *self.options, *self.serving, *health]

    @property
    def serving(self) -> list[str]:
        """The words of the command line about channels."""
        return [] if self.serve is None else ["--serve", str(self.serve)]

    @property
    def file_name(self) -> str:
        """What its systemd unit is called."""
        return f"lemming-{self.name}.service"

    @property
    def label(self) -> str:
        """What its launchd agent is called."""
        return f"org.lemming.{self.name}"


def name_of_folder(folder_name: str) -> str:
    """Return a service's name for an organisation's folder.

    >>> name_of_folder("My News (2)"), name_of_folder("...")
    ('my-news-2', 'org')
    """
    return _UNFIT.sub("-", folder_name.lower()).strip("-")[:60] or "org"


def text_of(service: Service, form: Form) -> str:
    """Return the file that describes the service to systemd, launchd or docker compose."""
    return {"systemd": systemd_unit, "launchd": launchd_agent, "compose": compose_file}[form](service)


def systemd_unit(service: Service) -> str:
    """Return a unit for a user's own systemd.

    A status that only a person can mend ends it; else it is started again, at most six times in ten minutes.
    """
    return f"""\
# LeMMing {__version__}, `lemming service`; for the organisation in
{_marker(service.folder)}
[Unit]
Description=LeMMing organisation {_unquoted(service.folder)}
Documentation=man:systemd.service(5)
StartLimitIntervalSec=600
StartLimitBurst=6

[Service]
Type=notify
NotifyAccess=main
ExecStart={" ".join(map(_quoted, service.words))}
EnvironmentFile=-{_unquoted(service.keys_file)}
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


def is_for(text: str, folder: str) -> bool:
    """Return whether a unit was written for the organisation in this folder."""
    return _marker(folder) in text.splitlines()


def launchd_agent(service: Service) -> str:
    """Return a property list for launchd. It reads no file of keys, so a shell does."""
    script = 'set -a; [ -r "$1" ] && . "$1"; set +a; shift; exec "$@"'
    plain = {
        "Label": service.label,
        "ProgramArguments": ["/bin/sh", "-c", script, "lemming", service.keys_file, *service.words],
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": RESTART_S,
        "ExitTimeOut": STOP_S,
        "ProcessType": "Background",
        "StandardOutPath": service.log_file,
        "StandardErrorPath": service.log_file,
    }
    return plistlib.dumps(plain, sort_keys=False).decode()


def compose_file(service: Service) -> str:
    """Return a file for docker compose, with the image's recipe in it. The folder is mounted at /org."""
    port = 8642 if service.health is None else service.health
    command = ["lemming", "-C", "/org", "run-forever", *service.options, *service.serving]
    command += ["--health", str(port)]
    # Channels listen on 127.0.0.1 only: that of the machine, where a proxy with TLS stands before them.
    network = "" if service.serve is None else "    network_mode: host\n"
    ask = f"import urllib.request as u; u.urlopen('http://127.0.0.1:{port}/healthz')"
    quoted = {key: json.dumps(value) for key, value in {
        "folder": service.folder.replace("$", "$$"),
        "keys": service.keys_file.replace("$", "$$"),
    }.items()}  # fmt: skip
    return f"""\
# LeMMing {__version__}, `lemming service --form compose`
name: lemming-{service.name}
services:
  engine:
    build:
      dockerfile_inline: |
        FROM python:3.12-slim
        RUN apt-get update && apt-get install -y --no-install-recommends git bubblewrap
        RUN pip install --no-cache-dir "lemming-engine=={__version__}"
    command: {json.dumps([word.replace("$", "$$") for word in command])}
    init: true
{network}    restart: on-failure
    user: "${{UID:-1000}}:${{GID:-1000}}"
    stop_grace_period: {STOP_S}s
    environment:
      HOME: /tmp
    env_file:
      - path: {quoted["keys"]}
        required: false
    volumes:
      - type: bind
        source: {quoted["folder"]}
        target: /org
    healthcheck:
      test: {json.dumps(["CMD", "python", "-c", ask])}
      interval: 60s
      timeout: 20s
      start_period: 120s
"""


def _marker(folder: str) -> str:
    return f"# {json.dumps(folder)}"


def _quoted(word: str) -> str:
    """Return a word of a command line as systemd reads it.

    >>> print(_quoted("/srv/50% $off"), _quoted('say "hi"'))
    "/srv/50%% $$off" "say \\"hi\\""
    """
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"' if re.search(r"[^\w@%+=:,./-]", word) else escaped


def _unquoted(text: str) -> str:
    """Return a text that takes the rest of a unit's line."""
    return text.replace("%", "%%").replace("\n", " ")
