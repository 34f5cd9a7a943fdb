"""The entries of the capability table in `lemming.kernel.plugins.capability_table`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

NO_KEYS: Mapping[str, str] = {}


class CapabilitySpec(NamedTuple):
    """Entry of the capability table. Import paths are "module:name".

    Keys: `resume` and `org` map keys of a resume and of `config/org.json` to the class with the key as a
    field. `members` maps keys of a team member to a function that parses the value at a given location.
    `turn`: keys of a resume's `turn`. `schedule` maps keys of a resume's `schedule` to a function that
    validates the value. `model`: keys of a model entry in `config/models.json`. `gates`: values of a gate's
    `then` handled by the capability.

    Screens: `commands` maps commands to "module:name" of their code, or to "" for a command of `lemming.commands` that
    needs the capability. `facts` maps names such as "gates.rules" to functions for commands, queries and the page,
    which never import a capability (`capability_loader.find_fact`).

    Participation: `needs`: capabilities that must be installed too. `can_begin`: the capability may call a model,
    or show content, before the turn's own first call. `has_reply_holds`: the capability can hold expired
    entries awaiting a reply. `after`: capabilities called earlier at every common hook. `is_used` decides the
    use from an agent and the settings, besides keys and grants. `is_requested` decides from the asker and the
    payload of a request. `participates` decides from the inputs of a turn, for a capability without a
    snapshot.

    Models: `backends` are providers that call models, without hooks in a turn. `providers` are names for
    model keys; an agent with such a key uses the capability. `is_model_free`: the providers compute their
    answers. `records`: record kinds written by the capability. `executors`: values of `executor` in
    `config/org.json`, each with its executor class. `pricing`: function that computes the cost of a call in
    dollars. `priced_providers`: providers with known prices. `server_profiles`: class of the server profiles.

    Ticks and files: `tick` is the tick interceptor (`tick.tick_hooks`). `files`: files read by this
    capability only. `formats`: classes of file formats. `removable_files`: patterns of files removed by the
    capability. `strategies` maps names to strategies; `memory_strategies` lists strategies with state in
    memories.

    Tools: `tools` maps names to tool classes. `source` is a `ToolSource` for further tools. `function_tool`
    makes a tool from a function. `granted_by` maps tools to the resume key that grants them. `writers`: tools
    with calls that make the turn write entries. `has_own_tools` decides from settings and resumes if `source`
    may have tools. Names of server tools begin with `prefix`. `gateway` carries messages between ticks.
    `has_side_effects` decides from settings and agents if the capability may act outside the organisation's
    folder.
    """

    name: str
    import_path: str
    resume: Mapping[str, str] = NO_KEYS
    org: Mapping[str, str] = NO_KEYS
    members: Mapping[str, str] = NO_KEYS
    gates: frozenset[str] = frozenset()
    turn: tuple[str, ...] = ()
    schedule: Mapping[str, str] = NO_KEYS
    commands: Mapping[str, str] = NO_KEYS
    facts: Mapping[str, str] = NO_KEYS
    needs: tuple[str, ...] = ()
    can_begin: bool = False
    has_reply_holds: bool = False
    after: tuple[str, ...] = ()
    is_used: Callable[[Any, Any], Any] | None = None
    is_requested: Callable[[Any, Mapping[str, Any]], Any] | None = None
    participates: Callable[[Any], Any] | None = None
    backends: Mapping[str, str] = NO_KEYS
    providers: Mapping[str, str] = NO_KEYS
    is_model_free: bool = False
    memory_strategies: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    records: Mapping[str, str] = NO_KEYS
    executors: Mapping[str, str] = NO_KEYS
    pricing: str = ""
    server_profiles: str = ""
    priced_providers: tuple[str, ...] = ()
    tick: str = ""
    files: tuple[str, ...] = ()
    formats: Mapping[str, str] = NO_KEYS
    removable_files: tuple[str, ...] = ()
    strategies: Mapping[str, str] = NO_KEYS
    tools: Mapping[str, str] = NO_KEYS
    granted_by: Mapping[str, str] = NO_KEYS
    writers: tuple[str, ...] = ()
    source: str = ""
    prefix: str = ""
    has_own_tools: Callable[[Any, Any], Any] | None = None
    function_tool: str = ""
    gateway: str = ""
    has_side_effects: Callable[[Any, Any], Any] | None = None

    @property
    def package(self) -> str:
        """The package with the capability's code."""
        return self.import_path.rpartition(":")[0].rpartition(".")[0]
