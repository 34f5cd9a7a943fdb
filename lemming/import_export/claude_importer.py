"""Import of Claude Code's subagents and skills, and of a project's `AGENTS.md`.

Keys of a subagent without a counterpart are stored under `x-claude` in its resume. Existing files of the organisation
are never overwritten.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lemming.import_export.apply_document import PlannedWrite, plan_writes
from lemming.import_export.import_source import ImportSource, Remark
from lemming.import_export.org_document import OrgDocument
from lemming.kernel.agents import decode_resume
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, UsageError
from lemming.kernel.base.jsontext import dump_pretty, parse
from lemming.kernel.files import fs
from lemming.kernel.tools import SHIPPED
from lemming.libraries.compatible_servers import SERVERS
from lemming.libraries.wording import join_names

Json = dict[str, Any]

_TOOLS = {
    "bash": "shell", "read": "file_read", "write": "file_write", "edit": "file_edit", "multiedit": "file_edit",
    "glob": "file_list", "ls": "file_list", "grep": "file_search", "webfetch": "http_get",
}  # fmt: skip
_UNNEEDED_TOOLS = {
    "todowrite": "memories need no tool",
    "todoread": "memories need no tool",
    "skill": '"skills" needs no tool',
}
SAFE_TOOLS = ("file_read", "file_write", "file_edit", "file_list", "file_search")
"""Tools for an imported agent with access to "all": they reach no further than its own workspace."""

MODEL_ALIASES = {
    "sonnet": "claude-sonnet-5-5",
    "opus": "claude-opus-5-5",
    "haiku": "claude-haiku-5-5",
    "fable": "claude-fable-5-2",
}
"""Claude Code's names of models, and the full names."""

_PROVIDERS = {"anthropic", "openai", "ollama", *(name for name, host in SERVERS.items() if host.address)}

AGENTS, SKILLS = ".claude/agents", ".claude/skills"
_MAX_STEPS = 50
_PROVIDERS_BY_PREFIX = {"claude-": "anthropic", "gpt-": "openai", "o1": "openai", "o3": "openai", "o4": "openai"}

_UNSUPPORTED_KEYS = {
    "permissionMode": "LeMMing's tools use permissions and do not ask",
    "hooks": "hooks are not supported",
    "mcpServers": "put servers into config/mcp.json",
    "memory": "memories need no setting; stored memories are not imported",
    "isolation": "every agent has its own workspace",
}


_SECRET = re.compile(r"(?:api_?key|access_?key|private_?key|token|secret|password|authorization)\Z", re.IGNORECASE)
_LEFT_OUT = "(left out)"
_LIMIT_BYTES = 1 << 20


@dataclass
class ClaudeImport:
    """An import of a project: resumes, models, and shared guides and skills by path, skipped where the path exists.

    `people`: the persons of the organisation. `is_in_place`: the project is in the organisation's own folder, so files
    readable in place are not copied.
    """

    source: ImportSource
    people: Sequence[str]
    is_in_place: bool = False
    resumes: dict[str, Json] = field(default_factory=dict)
    models: dict[str, Json] = field(default_factory=dict)
    optional: dict[str, bytes] = field(default_factory=dict)

    def add_remark(self, file: str, message: str) -> None:
        """Add a remark for the user."""
        self.source.remarks.append(Remark(file, message))

    def read_project(self) -> None:
        """Read the subagents of the project, the skills, and the `AGENTS.md` or `CLAUDE.md`."""
        source = self.source
        guides = (file for file in (paths.GUIDE, "CLAUDE.md", ".claude/CLAUDE.md") if source.read_bytes(file))
        if (guide := next(guides, None)) and not (self.is_in_place and guide == paths.GUIDE):
            self.optional[paths.GUIDE] = source.read_bytes(guide) or b""
        skills = self._read_skills()
        for path in source.walk_files(AGENTS):
            file = f"{AGENTS}/{path}"
            document = source.read_markdown(file) if path.endswith(".md") else None
            if document is None:
                continue
            header, body = document
            name = to_agent_name(str(header.get("name") or path.rpartition("/")[2].removesuffix(".md")))
            if not {"name", "description"} & header.keys():
                self.add_remark(file, "has neither name nor description: left out")
            elif not name:
                self.add_remark(file, "has no valid name for an agent: left out")
            elif name in self.resumes:
                self.add_remark(file, f"there is another agent {name}: left out")
            else:
                self.resumes[name] = self._build_resume(name, file, header, body, skills, is_guided=guide is not None)
        self._join_teams()
        folders, files = source.list_folder(".claude")
        skipped = [f"{name}/" for name in folders if name not in ("agents", "skills")]
        if skipped := [*skipped, *(name for name in files if name != "CLAUDE.md")]:
            self.add_remark(".claude", f"not imported: {join_names(skipped, 10)}")

    def _read_skills(self) -> dict[str, str]:
        """Read the skills, and return the resume entry of each skill by name."""
        folders = {name: f"{SKILLS}/{name}" for name in self.source.list_folder(SKILLS)[0]}
        read = self.source.read_bytes
        skills = {name: path for name, path in folders.items() if read(f"{path}/{paths.SKILL_FILE}") is not None}
        if self.is_in_place:
            return skills
        for name, path in skills.items():
            for file in self.source.walk_files(path):
                if (raw := self.source.read_bytes(f"{path}/{file}")) is not None:
                    self.optional[f"skills/{name}/{file}"] = raw
        return {name: name for name in skills}

    def _build_resume(
        self, name: str, file: str, header: Json, body: str, skills: Mapping[str, str], *, is_guided: bool
    ) -> Json:
        description = str(header.get("description") or "")
        requested = split_words(header.get("skills"))
        for missing in (skill for skill in requested if skill not in skills):
            self.add_remark(file, f'skill "{missing}" is not in {SKILLS}; put it into skills/')
        if requested:
            self.add_remark(file, "the skills are read on demand, not put into every prompt")
        # the remarks on denied tools would not help the user
        denied = {map_tool(tool_name)[0] for tool_name in split_words(header.get("disallowedTools"))}
        mapped = [map_tool(tool_name) for tool_name in split_words(header.get("tools")) if not _is_subagent(tool_name)]
        for remark in (remark for _, remark in mapped if remark):
            self.add_remark(file, remark)
        tools = [*dict.fromkeys(tool for tool, _ in mapped if tool)]
        if "tools" not in header:
            tools = [tool for tool in SAFE_TOOLS if tool in SHIPPED]
            granted = f"it may use all tools in the source, and {', '.join(tools)} here"
            self.add_remark(file, f"{granted}; add others to permissions.tools")
        for key, reason in _UNSUPPORTED_KEYS.items():
            if key in header:
                self.add_remark(file, f"{key}: {reason}")
        steps = header.get("maxTurns")
        max_steps = min(steps, _MAX_STEPS) if isinstance(steps, int) and steps > 0 else 0
        if max_steps and max_steps != steps:
            self.add_remark(file, f"maxTurns {steps}: a turn has at most {_MAX_STEPS} steps")
        model_key = self._map_model(str(header.get("model") or ""), file)
        is_mapped = {
            "name": header.get("name") == name,
            "model": header.get("model") == model_key,
            "maxTurns": max_steps and max_steps == steps,
            "skills": isinstance(header.get("skills"), list),
        }
        options = {
            "skills": [skills.get(skill, skill) for skill in requested],
            "guides": is_guided,
            "turn": {"max_steps": max_steps} if max_steps else {"max_steps": 5} if tools else {},
            "x-claude": {key: value for key, value in header.items() if not is_mapped.get(key)},
        }
        return {
            "name": name,
            "title": make_title(name, description),
            "model": {"key": model_key},
            "permissions": {"read_outboxes": [*self.people], "tools": [tool for tool in tools if tool not in denied]},
            "schedule": {"run_every_n_ticks": 1, "wake": "addressed"},
            "instructions": body or description or f"You are {name}.",
            "credits": {"max_credits": 1000, "soft_cap": 500},
            **{key: value for key, value in options.items() if value},
        }

    def _map_model(self, model_name: str, file: str) -> str:
        """Return our model key for a model name, and record the model entry."""
        if not model_name or model_name in ("inherit", "default"):
            return "default"
        if model_name in MODEL_ALIASES:
            self.models[model_name] = {"provider": "anthropic", "model": MODEL_ALIASES[model_name]}
            return model_name
        provider, slash, model = model_name.partition("/")
        if not slash:
            providers = (name for prefix, name in _PROVIDERS_BY_PREFIX.items() if model_name.startswith(prefix))
            provider, model = next(providers, ""), model_name
        if provider not in _PROVIDERS:
            self.add_remark(file, f'model "{model_name}": unknown provider; "default" is used instead')
            return "default"
        key = model.replace("/", "-")
        self.models[key] = {"provider": provider, "model": model}
        return key

    def _join_teams(self) -> None:
        """Let agents ask the subagents in their tools, `Agent(one, two)`, or all. Both sides read each other."""
        for name, resume in self.resumes.items():
            for tool_name in filter(_is_subagent, split_words(resume.get("x-claude", {}).get("tools"))):
                requested = split_words(tool_name.partition("(")[2].rstrip(")"))
                for missing in (member for member in requested if member not in self.resumes):
                    self.add_remark(name, f"it may start {missing}, which was not imported: left out")
                for member in requested or self.resumes:
                    if member not in self.resumes or member == name:
                        continue
                    _append_missing(resume.setdefault("team", {"ask": []})["ask"], member)
                    for reader, author in ((name, member), (member, name)):
                        _append_missing(self.resumes[reader]["permissions"]["read_outboxes"], author)

    def plan_writes(self, base: Path, template: Mapping[str, bytes]) -> list[PlannedWrite]:
        """Return the writes of the import, with the `template` of a new organisation.

        An agent with an invalid resume is left out with a remark, as is a different existing guide or skill. Raises:
        UsageError if a file of an agent exists, except for the files of an interrupted import.
        """
        files: dict[str, bytes] = {}
        for name, resume in list(self.resumes.items()):
            file = paths.resume_file(name)
            self.resumes[name] = self._remove_secrets(resume, name)
            content = dump_pretty(self.resumes[name])
            try:
                decode_resume(name, content)
            except ConfigError as error:
                self.add_remark(file, f"{error.message}: left out")
                del self.resumes[name]
                continue
            files[file] = content
        existing = [path for path in files if _has_path(base, path)]
        is_interrupted_import = len(existing) < len(files) and all(
            fs.has_content(base / path, files[path]) for path in existing
        )
        if existing and not is_interrupted_import:
            names = ", ".join(existing[:4]) + (", ..." if len(existing) > 4 else "")
            hint = "rename them there, or rename these with `lemming agents rename`"
            raise UsageError(f"{names} already present; nothing was written", where=str(base), hint=hint)
        models = self._select_models(base, template.get(paths.MODELS_FILE))
        settings = {paths.MODELS_FILE: models} if models else {}
        new_files = {}
        for path, raw in self.optional.items():
            if not _has_path(base, path):
                new_files[path] = raw
            elif fs.read_bytes(base / path, len(raw) + 1) != raw:
                self.add_remark(path, "already exists with other content; it was not changed")
        return plan_writes(base, OrgDocument(self.resumes, settings, new_files, []), template)

    def _select_models(self, base: Path, template_raw: bytes | None) -> Json:
        """Return the missing entries of the models file; `template_raw` is the file of a new organisation."""
        used = {resume["model"]["key"] for resume in self.resumes.values()} & self.models.keys()
        if template_raw is None and _has_path(base, paths.MODELS_FILE):
            template_raw = fs.read_bytes(base / paths.MODELS_FILE, _LIMIT_BYTES)
        existing: Json = parse(template_raw, allow_bom=True) if template_raw else {}
        for key in used & existing.keys():
            if existing[key].get("model") != self.models[key]["model"]:
                self.add_remark(paths.MODELS_FILE, f'"{key}" already exists for another model; it was not changed')
        return {key: self.models[key] for key in sorted(used) if key not in existing}

    def _remove_secrets(self, resume: Json, name: str) -> Json:
        """Return a resume without the secrets of the source, and add a remark for each."""

        def strip_secrets(value: Any, key: str = "") -> Any:
            if isinstance(value, dict):
                return {inner_key: strip_secrets(item, inner_key) for inner_key, item in value.items()}
            if isinstance(value, list):
                return [strip_secrets(item) for item in value]
            if isinstance(value, str) and value and _SECRET.search(key) and not value.startswith("$"):
                self.add_remark(name, f"the value of {key} was left out: use an environment variable")
                return _LEFT_OUT
            return value

        return {key: strip_secrets(value) if key.startswith("x-") else value for key, value in resume.items()}


def _is_subagent(tool_name: str) -> bool:
    return tool_name.partition("(")[0] in ("Agent", "Task")


def _append_missing(names: list[str], name: str) -> None:
    if name not in names:
        names.append(name)


def _has_path(base: Path, path: str) -> bool:
    return (base / path).exists() or (base / path).is_symlink()


def to_agent_name(text: str) -> str:
    """Convert a text to an agent name, or to an empty text if no valid name remains.

    >>> to_agent_name("Code Reviewer"), to_agent_name("../x"), to_agent_name("Зоя")
    ('code-reviewer', 'x', '')
    """
    name = re.sub(r"[^a-z0-9_-]+", "-", text.strip().lower()).strip("-_")[:63]
    return "" if paths.new_agent_name_error(name) else name


def make_title(name: str, description: str) -> str:
    """Return a title: the first clause of a description, or the name if the description begins with "use" or
    "must".

    >>> make_title("reviewer", "Reviews code. Use it after each change.")
    'Reviews code'
    >>> make_title("code-reviewer", "Use this agent when code has changed.")
    'Code Reviewer'
    """
    first = re.split(r"[.;:\n]", " ".join(description.split()), maxsplit=1)[0].strip()
    if not first or first.lower().startswith(("use ", "must ")):
        return name.replace("-", " ").replace("_", " ").title()
    return first if len(first) <= 60 else f"{first[:60].rsplit(' ', 1)[0]} ..."


def split_words(value: Any) -> list[str]:
    """Return the items of a list, or of a comma-separated text: `Read, Agent(a, b), Bash`."""
    if isinstance(value, str):
        return [item.strip() for item in re.findall(r"(?:[^,(]|\([^)]*\)?)+", value) if item.strip()]
    return [str(item).strip() for item in value if str(item).strip()] if isinstance(value, list) else []


def map_tool(name: str) -> tuple[str, str]:
    """Return our tool for a tool of Claude Code, and a remark; each may be an empty text."""
    tool_name = name.partition("(")[0].strip().lower()
    mapped_name = _TOOLS.get(tool_name, "")
    if mapped_name in SHIPPED:
        remark = f"tool {name}: {mapped_name} is granted without the limits in brackets"
        return mapped_name, remark if "(" in name else ""
    if tool_name.startswith("mcp__"):
        parts = ".".join(name.split("__"))
        return "", f'tool {name}: add "{parts}" to permissions.tools once its server is set up'
    return "", f"tool {name}: {_UNNEEDED_TOOLS.get(tool_name, 'LeMMing has no such tool; it was left out')}"
