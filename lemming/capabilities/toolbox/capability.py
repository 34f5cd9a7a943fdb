"""What the tools that ship, and functions in files, are to the engine beside their calls."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress

from lemming.capabilities.toolbox.functions.finding import empty_patterns, find_files, with_neighbours
from lemming.kernel.access.bound import code, of_files
from lemming.kernel.access.trust import Reach
from lemming.kernel.agents import Agent
from lemming.kernel.base.errors import ConfigError, Problem
from lemming.kernel.files.fields import Json
from lemming.kernel.mail.capability_notes import CallNote
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.tools.listing import read_found_tools
from lemming.kernel.turn.seams import Capability


class Toolbox(Capability):
    """The tools that ship, and those that are functions in an organisation's own files."""

    name = "toolbox"

    def note(self, kept: Json) -> CallNote:
        """Return which tools a search has found."""
        return CallNote(
            f"found {', '.join(tool['name'] for tool in read_found_tools({self.name: kept}))}", "", ""
        )

    def problems_of_org(self, base: OrgPath, config: Config, only: str | None) -> Iterator[Problem]:
        """Yield a warning for each pattern of files of tools that matches none."""
        with suppress(ConfigError):  # it stops the run, which is told where tools are looked for
            yield from empty_patterns(Organisation.at(base).base, config.org.tool_files)

    def reaches(
        self, org: Organisation, config: Config, agents: Sequence[Agent], servers: Collection[str]
    ) -> Iterator[Reach]:
        """Yield which files' code is loaded; the patterns themselves where they are no good."""
        patterns = config.org.tool_files
        try:
            for file in find_files(org.base, patterns)[0]:
                yield code(
                    f"runs the Python code in {file}", of_files(org, with_neighbours(org.base, [file]))
                )
        except ConfigError:
            for pattern in patterns:
                yield code(f"runs the Python code in {pattern}")
