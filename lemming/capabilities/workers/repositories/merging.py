"""Merges a worker's tree into a branch of the user's repository, exactly once.

A merge is planned in the engine's repository, which changes nothing of the user, and published: objects are copied, and
the branch moves if it is where the plan saw it. A repeat, also after a kill at any moment, finds the commit in the branch
by its trailers. The same order on the same branch gives the same commit id.
"""

from __future__ import annotations

import os
from calendar import timegm
from dataclasses import dataclass

from lemming.capabilities.workers.repositories.engine_repository import EngineRepository, to_address
from lemming.capabilities.workers.repositories.git_command import GitError, RepositoryError
from lemming.capabilities.workers.repositories.tree_walk import to_text
from lemming.capabilities.workers.repositories.user_repository import UserRepository, require_own_branch, to_ref
from lemming.kernel.base.clock import parse_timestamp
from lemming.kernel.files.field_types import Json

MAX_SIDE_BYTES = 20_000
"""Bytes of each version of a file in a conflict."""

MAX_CONFLICT_FILES = 50
"""Number of files in a conflict whose versions are shown; of further files there are the names."""

MAX_MOVES = 5
"""Times that the branch may move while one patch is merged."""

_STAGES = {"1": "base", "2": "branch", "3": "worker"}
_MAX_SUBJECT = 72


@dataclass(frozen=True, kw_only=True)
class MergeOrder:
    """A tree to be merged into a branch.

    `base`: commit that the worker started from. `tree`: id of the worker's tree, whose objects the engine's repository
    has. `patch`: SHA-256 of the recorded patch. `at`: timestamp of the tick, the commit's date. `org`: id of the
    organisation. `summary`: text for the commit message. `base_branch`: branch that the work starts from, as in
    `find_base`.
    """

    agent: str
    branch: str
    base: str
    tree: str
    patch: str
    tick: int
    turn: str
    at: str
    org: str
    summary: str
    base_branch: str = ""


@dataclass(frozen=True)
class MergePlan:
    """A commit to publish. `old`: the branch's head, or an empty text if there is no branch yet."""

    commit: str
    old: str


def merge_tree(engine_repo: EngineRepository, repository: UserRepository, order: MergeOrder) -> Json:
    """Bring the order's changes to its branch, and return what became of them. Safe to repeat.

    Returns: `merged` with the commit or `already` with the branch's head, and `branch`; or `conflict` with texts by path
    and by side ("base", "branch", "worker"; a side without the file is missing), and `head`.

    Raises: RepositoryError if the branch is checked out, or moves again and again.
    """
    for _ in range(MAX_MOVES):
        # Looked up each time: an earlier try may have been killed right after the branch moved.
        if commit := find_published(repository, order):
            return {"merged": commit, "branch": order.branch}
        plan = plan_merge(engine_repo, repository, order)
        if not isinstance(plan, MergePlan):
            return plan
        if publish(engine_repo, repository, order, plan):
            return {"merged": plan.commit, "branch": order.branch}
    hint = "run the agent again"
    raise RepositoryError(f"branch {order.branch} moved {MAX_MOVES} times meanwhile", hint=hint)


def find_published(repository: UserRepository, order: MergeOrder) -> str:
    """Return the commit of this order in the branch's history, by its trailers, or an empty text.

    The history of a branch is the user's: a forged trailer would need a commit of the user.
    """
    if not (head := repository.read_head(order.branch)):
        return ""
    expected = {"Turn": order.turn, "Patch": order.patch, "Org": order.org}
    commits = repository.read("rev-list", head, f"^{order.base}").split()
    return next((name for name in commits if expected.items() <= repository.read_trailers(name).items()), "")


def plan_merge(engine_repo: EngineRepository, repository: UserRepository, order: MergeOrder) -> MergePlan | Json:
    """Return the commit that brings the order's changes to the branch, or the reason for none, as `merge_tree`."""
    require_own_branch(repository, order.branch, order.agent)
    old = repository.read_head(order.branch)
    parents, tree, head = [order.base], order.tree, old
    if not old and not repository.is_reachable(order.base):
        head = repository.read_base(order.base_branch)  # the user has dropped what the worker started from
    if head and (not old or not _can_follow_base(repository, order.base, old)):
        files_or_tree = merge_trees(engine_repo, order.base, head, order.tree)
        if not isinstance(files_or_tree, str):
            return {"conflict": files_or_tree, "head": head}
        parents, tree = [head], files_or_tree
    elif old and not repository.is_ancestor(old, order.base):
        parents.append(old)  # squashed into the base: its commits stay in the branch's history
    if tree == engine_repo.read("rev-parse", f"{parents[0]}^{{tree}}"):
        return {"already": old or order.base, "branch": order.branch}
    date = f"@{timegm(parse_timestamp(order.at).utctimetuple())} +0000"
    identity = (order.agent, to_address(order.agent), date)
    return MergePlan(create_commit(engine_repo, tree, parents, format_message(order), identity), old)


def publish(engine_repo: EngineRepository, repository: UserRepository, order: MergeOrder, plan: MergePlan) -> bool:
    """Copy the plan's commit into the user's repository and move the branch; return False if the branch has moved.

    Safe to repeat. No hook runs. Raises RepositoryError if the branch is checked out, and GitError for objects that git's
    checks refuse.
    """
    require_own_branch(repository, order.branch, order.agent)
    # All that the commit needs, without what the user's repository has.
    revisions = "".join([f"{plan.commit}\n", *(f"^{name}\n" for name in (plan.old, order.base) if name)])
    pack = engine_repo.run("pack-objects", "--revs", "--stdout", "-q", stdin=revisions.encode())
    repository.run("unpack-objects", "-q", "--strict", stdin=pack)
    return _move_branch(repository, order, plan)


def merge_trees(engine_repo: EngineRepository, base: str, head: str, tree: str) -> str | dict[str, dict[str, str]]:
    """Return the tree with the changes from `base` to both `head` and `tree`, or the versions of files in conflict.

    `base`, `head`, `tree`: commits or trees.
    """
    # Before git 2.40, merge-tree takes the common ancestor of two commits. With commits made for it the ancestor is the
    # given base, also after the user has reset the branch or where the history is shallow.
    ancestor = _create_stand_in(engine_repo, base)
    heads = [_create_stand_in(engine_repo, name, ancestor) for name in (head, tree)]
    try:
        output = engine_repo.run("merge-tree", "--write-tree", "-z", "--no-messages", *heads)
    except GitError as error:
        if error.status != 1:
            raise
        return _read_sides(engine_repo, error.output.split(b"\0")[1:])
    return output.split(b"\0")[0].decode().strip()


def create_commit(
    engine_repo: EngineRepository, tree: str, parents: list[str], message: str, identity: tuple[str, str, str]
) -> str:
    """Return the id of a new commit, the same for the same arguments. `identity`: name, address and date for git."""
    facts = dict(zip(("NAME", "EMAIL", "DATE"), identity, strict=True))
    env = {f"GIT_{role}_{fact}": value for role in ("AUTHOR", "COMMITTER") for fact, value in facts.items()}
    arguments = [part for parent in parents for part in ("-p", parent)]
    return engine_repo.read("commit-tree", tree, *arguments, stdin=message.encode("utf-8", "replace"), env=env)


def _move_branch(repository: UserRepository, order: MergeOrder, plan: MergePlan) -> bool:
    env = {"GIT_COMMITTER_NAME": order.agent, "GIT_COMMITTER_EMAIL": to_address(order.agent)}
    ref, reason = to_ref(order.branch), f"lemming: turn {order.turn}"
    options = ("--no-deref", "--create-reflog", "-m", reason)
    try:
        repository.run("update-ref", *options, ref, plan.commit, plan.old or repository.no_commit, env=env)
    except GitError:
        # A git that outlived a killed engine may have moved the branch to this very commit.
        if find_published(repository, order) == plan.commit:
            return True
        if repository.read_head(order.branch) == plan.old:
            raise  # git refuses for another reason, such as a branch named like the folder of this one
        return False
    return True


def format_message(order: MergeOrder) -> str:
    """Return the commit message: summary, and trailers by which a line is traced to its turn."""
    text = "".join(char for char in order.summary if char.isprintable() or char == "\n").strip()
    subject, _, body = text.partition("\n")
    if len(subject) > _MAX_SUBJECT:
        subject, body = f"{subject[: _MAX_SUBJECT - 3]}...", text
    values = {"Agent": order.agent, "Tick": order.tick, "Turn": order.turn, "Org": order.org, "Patch": order.patch}
    trailers = "\n".join(f"LeMMing-{name}: {' '.join(str(value).split())}" for name, value in values.items())
    paragraphs = [subject.strip() or f"Changes of {order.agent}", body.strip(), trailers]
    return "\n\n".join(paragraph for paragraph in paragraphs if paragraph) + "\n"


def _can_follow_base(repository: UserRepository, base: str, old: str) -> bool:
    """Return True if the base has all that the branch's head has, since the branch was merged into the base."""
    if old == base:
        return True
    # A base that no branch has any more was dropped by the user, and must not come back with the worker's changes.
    return not repository.is_ancestor(base, old) and repository.is_reachable(base) and repository.has_changes(base, old)


def _create_stand_in(engine_repo: EngineRepository, name: str, parent: str = "") -> str:
    tree = engine_repo.read("rev-parse", f"{name}^{{tree}}")
    return create_commit(engine_repo, tree, [parent] if parent else [], "", ("-", "-", "@0 +0000"))


def _read_sides(engine_repo: EngineRepository, fields: list[bytes]) -> dict[str, dict[str, str]]:
    """Return the versions of files in conflict from the fields of `git merge-tree -z`."""
    files: dict[str, dict[str, str]] = {}
    for line in fields:
        if not line:
            break
        facts, _, path = line.partition(b"\t")
        mode, name, stage = facts.decode().split()
        sides = files.setdefault(to_text(path), {})
        if len(files) <= MAX_CONFLICT_FILES:
            sides[_STAGES[stage]] = _read_side(engine_repo, mode, name)
    if not files:
        raise RepositoryError("merge must name the files in conflict, got none", where=os.fspath(engine_repo.git_dir))
    return files


def _read_side(engine_repo: EngineRepository, mode: str, name: str) -> str:
    if mode == "160000":
        return f"(submodule at {name})"
    content = engine_repo.read_blobs([name])[0]
    if b"\0" in content[:8_000]:
        return f"(binary file of {len(content)} bytes)"
    text = content[:MAX_SIDE_BYTES].decode("utf-8", "replace")
    return text if len(content) <= MAX_SIDE_BYTES else f"{text}\n(cut: the file has {len(content)} bytes)"
