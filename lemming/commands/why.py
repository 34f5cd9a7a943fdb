"""`lemming why`: the origin of an entry, a memory, a file, or a line that a worker wrote."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated

from lemming.commands.command_context import CommandContext, argument, option
from lemming.commands.terminal import (
    get_terminal_width,
    one_line,
    print_data,
    print_json,
    print_notice,
    print_warning,
    style_text,
)
from lemming.commands.waiting import print_wrapped
from lemming.journal_tools.provenance.provenance_tree import build_provenance, filter_branches, find_sources
from lemming.journal_tools.provenance.write_log import ProvenanceNode, WriteLog, load_trust_steps
from lemming.kernel.base.errors import UsageError
from lemming.queries.line_trace import LineTrace, trace_line
from lemming.queries.views.why_view import describe_text, tree_to_json

_SCREEN_LINES = 40
_MAX_KNOWN_SHOWN = 5
_MIN_WIDTH = 40
_CUTOFF_TEXTS = {
    "depth": "--depth goes further back",
    "told": "its turn is shown elsewhere",
    "full": "the tree is full; trace this one separately",
}


def why(
    context: CommandContext,
    target: Annotated[str, argument("TARGET", "Entry id, file path, AGENT/memory/KEY, or PATH:LINE.")],
    depth: Annotated[int, option("--depth N", "Number of turns to trace back.", min=1, max=100)] = 3,
    everything: Annotated[bool, option("--all", "Repeat entries that already appear elsewhere in the tree.")] = False,
    grep: Annotated[str, option("--grep TEXT", "Show only branches that contain this text.")] = "",
    branch: Annotated[str, option("--branch BRANCH", "For PATH:LINE: read this branch, not the checked-out one.")] = "",
) -> None:
    """Trace where an entry, a memory, a file or a line came from.

    The tree shows the turn that wrote the target, the inputs visible to the turn, and the turns behind these
    inputs. Content written or edited by people ends a branch. The tree shows visible inputs and written
    outputs; causation is not claimed.

    PATH:LINE names a line in the repository of a workspace. The output names its commit, the worker's turn, who
    asked for the change, and who approved it.

    \b
    Examples:
      lemming why 3fa9c1d2e0b7
      lemming why editor/memory/goal --depth 1
      lemming why 3fa9c1d2e0b7 --depth 20 --grep ferry
      lemming why agents/editor/workspace/notes.txt --json | jq .target.turn.saw
      lemming why ../site/src/a.txt:12
    """
    base = context.org
    if trace := trace_line(base, target, branch=branch):
        print_json("line", trace.as_json())
        _print_line_trace(trace)
        return
    if branch:
        hint = "lemming why PATH:LINE --branch BRANCH"
        raise UsageError(f"--branch requires a line of a workspace's repository, got {target}", hint=hint)
    writings = WriteLog(base)
    root = build_provenance(writings, target, depth=depth)
    trust_steps = load_trust_steps(writings, root.path)
    if grep and not filter_branches(root, grep):
        print_warning(f'nothing in this tree contains "{one_line(grep, 80)}"; --depth goes further back')
    if context.print_as_json("why", tree_to_json(writings, root, trust_steps)):
        return
    lines = [*render_tree(root, everything=everything or bool(grep))]
    lines += ["", style_text("less trusted because of its origin", "bold")] if trust_steps else []
    for step in trust_steps:
        cause = f", of {step.agent}'s turn in tick {step.tick}, because of {step.because}" if step.because else ""
        endorsements = f"; endorsed: {', '.join(step.vouched)}" if step.vouched else ""
        lines.append(f"   {one_line(f'{step.what}: {step.trust}{cause}{endorsements}', 400)}")
    for line in lines:
        print_data(line)
    if len(lines) > _SCREEN_LINES and (leaves := find_sources(root)):
        print_data(f"\n{style_text('not written by a turn', 'bold')}")
        for node, turn in leaves:
            seen_text = f"(seen by {turn.agent} in tick {turn.tick})"
            print_data(f"   {_format_node(node, max(get_terminal_width(sys.stdout), _MIN_WIDTH) - 3, seen_text)}")
    if writings.damaged:
        ticks = ", ".join(map(str, sorted(writings.damaged)))
        print_warning(f"the journals of tick {ticks} cannot be read; `lemming repair` says more")


def _print_line_trace(trace: LineTrace) -> None:
    at, commit = trace.at[:19].replace("T", " "), trace.commit[:12]
    title = f"{trace.path}:{trace.line} of {trace.revision} in {trace.repository}"
    print_data(style_text(one_line(title, 400), "bold"))
    print_wrapped("line", trace.content)
    if not trace.agent:
        print_wrapped("written by", f"{trace.author}, in commit {commit}, {at}; not by a worker of this organisation")
        return
    harness = ", ".join(filter(None, (trace.harness, trace.model)))
    print_wrapped("written by", f"{trace.agent} in tick {trace.tick}{f', with {harness}' if harness else ''}")
    print_wrapped("commit", f"{commit}, {at}{f', merged in tick {trace.merge_tick}' if trace.merge_tick else ''}")
    if trace.summary:
        print_wrapped("summary", trace.summary)
    if trace.problem:
        print_wrapped("the turn is not known", trace.problem)
        return
    print_wrapped("asked by", f"{trace.asked_by} ({trace.first_request}): {trace.text}" if trace.asked_by else "nobody")
    if trace.approved_by:
        edit = ", who edited the patch" if trace.is_edited else ""
        print_wrapped("approved by", f"{trace.approved_by}{edit} ({trace.approval})")
    else:
        print_wrapped("approved by", "nobody: no gate asked a person")
    request = trace.first_request.rpartition("_")[2]
    print_notice(f"`lemming tick {trace.tick}` shows the turn, `lemming why {request}` the request", style="dim")


def render_tree(root: ProvenanceNode, *, everything: bool = False) -> Iterator[str]:
    """Return the lines of a tree, wrapped to the width of the screen."""
    tree = _Tree(root, everything=everything, width=max(get_terminal_width(sys.stdout), _MIN_WIDTH))
    return tree.render(root, "")


class _Tree:
    """A tree as lines of at most `width` characters.

    If a turn saw many known entries, entries shown elsewhere in the tree are only counted. Every entry has a
    separate line at least once.
    """

    def __init__(self, root: ProvenanceNode, *, everything: bool, width: int) -> None:
        self._width, self._everything = width, everything
        self._shown = {node.path for node in _walk_tree(root) if not _can_collapse(node)}

    def render(self, node: ProvenanceNode, margin: str) -> Iterator[str]:
        """Yield the lines of a node: the first without margin, the others with their margin."""
        text_width = self._width - len(margin)
        if node.turn is None:
            author = "" if node.what == "entry" else node.author
            parts = [author, f"tick {node.position[0]}", _CUTOFF_TEXTS.get(node.cut, "")] if node.position else []
            yield _format_node(node, text_width, f"({', '.join(filter(None, parts))})" if parts else "")
            return
        yield _format_node(node, text_width)
        inputs = node.turn.saw
        suffix = ", which could see:" if inputs else ", which could see only its instructions"
        origin = ""
        if node.position is not None:
            verb = "asked for" if node.what == "result" and not node.path else "written"
            time_text = node.turn.at[:19].replace("T", " ")
            crash_text = f", in an interrupted turn ({node.turn.cut_short})" if node.turn.cut_short else ""
            origin = f"{verb} by {node.author} in tick {node.position[0]}, {time_text}{crash_text}"
        yield f"{margin}   {style_text(one_line(origin + suffix, text_width - 3), 'dim')}"
        # Known entries are only counted if many of them appear elsewhere in the tree.
        known_entries = [entry for entry in inputs if _can_collapse(entry)]
        collapsed = {id(entry): entry for entry in known_entries if entry.path in self._shown}
        if self._everything or len(collapsed) <= _MAX_KNOWN_SHOWN:
            collapsed = {}
        self._shown.update(entry.path for entry in known_entries)
        visible = [child for child in inputs if id(child) not in collapsed]
        for number, child in enumerate(visible, 1):
            is_last = number == len(visible) and not collapsed
            # At most half of the width is margin: the left part is cut.
            inner = (margin + ("      " if is_last else "   │  "))[-max(self._width // 2 // 6 * 6, 6) :]
            first, *other_lines = self.render(child, inner)
            yield f"{inner[:-6]}   {'└─' if is_last else '├─'} {first}"
            yield from other_lines
        if collapsed:
            authors = ", ".join(sorted({entry.author for entry in collapsed.values()}))
            ticks = [entry.position[0] for entry in collapsed.values() if entry.position]
            is_cut = any(entry.cut == "depth" for entry in collapsed.values())
            count = f"{len(collapsed)} more entries of {authors}, ticks {min(ticks)} to {max(ticks)}"
            text = f"{count}: shown elsewhere{'; --depth goes further back' if is_cut else ''}"
            yield f"{margin}   └─ {style_text(one_line(text, text_width - 6), 'dim')}"


def _walk_tree(root: ProvenanceNode) -> Iterator[ProvenanceNode]:
    yield root
    for node in root.turn.saw if root.turn else ():
        yield from _walk_tree(node)


def _can_collapse(node: ProvenanceNode) -> bool:
    """Return True if the node is a known entry without remark whose turn is not expanded here."""
    return node.what == "entry" and bool(node.cut) and not node.remark and not node.is_new


def _format_node(node: ProvenanceNode, width: int, suffix: str = "") -> str:
    """Format a node on one line: kind, author, remark, and text to the width of the screen."""
    name = one_line(f"{node.what} {node.name}", max(width // 2, 20))
    author = f" of {node.author}" if node.what == "entry" and node.author else ""
    remark = one_line(node.remark, max(width - len(name) - len(author) - 4, 12)) if node.remark else ""
    fixed_width = len(name) + len(author) + (len(remark) + 4 if remark else 0)
    text = one_line(describe_text(node.text), max(width - fixed_width - 2 - (len(suffix) + 2 if suffix else 0), 12))
    remark_text = f"[{style_text(remark, 'yellow')}]" if remark else ""
    parts = (f"{style_text(name, 'bold')}{author}", remark_text, text, style_text(suffix, "dim"))
    return "  ".join(filter(None, parts))
