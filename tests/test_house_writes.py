"""One module writes to the disk, and what is kept for the whole process has a reason."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from package import TREES, calls, nodes, own_imports

# What a module keeps for the whole process, and why no organisation sees another's through it. What is known
# of an organisation's folder is kept by its `Organisation` (lemming/kernel/org/organisation.py).
OF_THE_PROCESS = {
    ("kernel/files/disk.py", "_disk_stack"): "the disk that tests put in the place of the real one, for a block",
    ("kernel/files/disk.py", "_observers"): "who is told of changes while a block runs; each may name a root",
    (
        "kernel/files/stat_cache.py",
        "_exact_devices",
    ): "what was learned of devices, which is so for all that is on them",
    (
        "kernel/logging_config.py",
        "_levels",
    ): "what a caller set by setup_logging, which shares but a path with run_tick",
    ("kernel/base/redaction/secrets.py", "_secrets"): "a secret is kept out of every file, whoever named it",
    ("kernel/base/redaction/secrets.py", "_named_variables"): "as _secrets",
    (
        "kernel/access/workspace_trust.py",
        "_guards",
    ): "a command loads no code that nobody agreed to, of whatever folder",
    (
        "capabilities/toolbox/functions/worker_pool.py",
        "_LOADED",
    ): "to load files of tools takes half a second, for each tick",
    ("kernel/base/redaction/secrets.py", "_config_passwords"): "as _secrets",
    ("kernel/base/aliases.py", "_warned"): "old names warn once in a process",
    ("kernel/base/aliases.py", "_classes"): "a class with old names registers as its module is imported",
    ("kernel/base/aliases.py", "_state"): "whether a plugin with old names was loaded",
    ("kernel/plugins/plugin_registry.py", "_registrations"): "a module registers as it is imported, once in a process",
    ("kernel/plugins/plugin_registry.py", "_installed"): "as _registrations",
    ("kernel/plugins/plugin_registry.py", "_offered"): "made of _registrations",
    (
        "operations/turns/parallel_turns.py",
        "_blocks",
    ): "how many ticks are under way: the interpreter has one garbage collector",
    ("operations/turns/parallel_turns.py", "_saved_threshold"): "how it was set before them",
    ("libraries/concurrency/async_calls.py", "_current"): "the loop on which the clients of SDKs live",
    (
        "capabilities/embedded_models/llama_provider.py",
        "_models",
    ): "loaded weights, hundreds of megabytes that all may use",
}
# Functions that remember what they returned for a path, which is no organisation's.
REMEMBERS_A_PATH = {
    ("capabilities/workers/harnesses/harness_table.py", "_ask_version"): "a program, with the time of its change",
}

WRITERS = {
    "kernel/files/fs.py",
    "kernel/files/safe_folder.py",
    "kernel/files/disk.py",
}
# What else looks like writing, and why it is none of the organisation's files.
NOT_WRITING = {
    ("capabilities/program_models/program_provider.py", "os.write"): "the pipe to a program",
    (
        "capabilities/program_models/program_provider.py",
        "tempfile.TemporaryDirectory",
    ): "where one runs that needs no files",
    ("capabilities/embedded_models/model_weights.py", "tempfile.TemporaryDirectory"): "where pip puts what it fetched",
    ("libraries/concurrency/http_server.py", "os.write"): "a line to standard error, from a thread that may",
    ("commands/signals.py", "os.write"): "a line to standard error, from a thread that must not wait",
    ("libraries/sandbox/sandbox_launcher.py", "os.mkdir"): "the command's own temporary folder, inside its walls",
    ("libraries/sandbox/sandbox_launcher.py", "os.write"): "pipes between a command, its keeper and the engine",
    ("libraries/processes/reaper.py", "os.write"): "a pipe to the engine",
    ("capabilities/mcp/mcp_launcher.py", "os.write"): "pipes between a server and the engine",
    ("capabilities/toolbox/functions/worker_pool.py", "os.write"): "the pipe to a process that runs functions",
    (
        "libraries/sandbox/sandbox_policy.py",
        "os.write",
    ): "the kernel's files about a process in /proc, and a pipe to bubblewrap",
    ("kernel/files/folder_lock.py", "os.fchmod"): "who may open the lock, which is throw-away",
    ("capabilities/workers/running/relay.py", "os.write"): "a pipe to the engine",
    ("capabilities/workers/running/harness_process.py", "os.write"): "a pipe to the process that starts a harness",
    (
        "capabilities/workers/running/model_gateway.py",
        "tempfile.TemporaryDirectory",
    ): "a short path for a Unix socket",
    ("git_history/git_repository.py", "os.mkdir"): "a folder for git in a temporary one",
    ("git_history/git_repository.py", "tempfile.TemporaryDirectory"): "where git looks without changing anything",
    (
        "capabilities/workers/repositories/engine_repository.py",
        "tempfile.TemporaryDirectory",
    ): "the index of one command of git, outside any organisation",
    ("capabilities/workers/harnesses/harness_table.py", "tempfile.TemporaryDirectory"): "HOME while a version is asked",
    ("evals/suite.py", "tempfile.TemporaryDirectory"): "where a case runs, in a copy",
    ("commands/rehearse.py", "tempfile.TemporaryDirectory"): "where a fork is that nobody keeps",
    ("dashboard/draft_trial.py", "tempfile.TemporaryDirectory"): "the same, of a resume that is tried on the page",
}
CHANGES_THE_DISK = {
    "os": {
        "chmod", "chown", "copy_file_range", "fchmod", "fchown", "fdatasync", "fsync", "ftruncate", "lchown",
        "link", "makedirs", "mkdir", "mkfifo", "mknod", "posix_fallocate", "pwrite", "remove", "removedirs",
        "removexattr", "rename", "renames", "replace", "rmdir", "sendfile", "setxattr", "symlink", "sync",
        "truncate", "unlink", "utime", "write", "writev",
    },
    "shutil": {"chown", "copy", "copy2", "copyfile", "copymode", "copystat", "copytree", "make_archive",
               "move", "rmtree", "unpack_archive"},
    "tempfile": {"NamedTemporaryFile", "SpooledTemporaryFile", "TemporaryDirectory", "TemporaryFile",
                 "mkdtemp", "mkstemp"},
}  # fmt: skip
CHANGES_A_VALUE = {
    "add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "remove",
    "setdefault", "update",
}  # fmt: skip
PATH_METHODS = {
    "chmod", "hardlink_to", "lchmod", "link_to", "mkdir", "rename", "rmdir", "symlink_to", "touch", "unlink",
    "write_bytes", "write_text",
}  # fmt: skip


def opens_for_writing(called: str, node: ast.Call) -> bool:
    """Whether the call is an `open` with a mode that changes the file, or that cannot be told from here."""
    if called == "open":
        modes = [*node.args[1:2], *(word.value for word in node.keywords if word.arg == "mode")]
        return any(not isinstance(mode, ast.Constant) or is_writing_mode(mode.value) for mode in modes)
    is_method = called.endswith(".open") and called != "os.open"
    return is_method and any(isinstance(arg, ast.Constant) and is_writing_mode(arg.value) for arg in node.args)


def is_writing_mode(mode: object) -> bool:
    return re.fullmatch(r"[rwaxbt+]*[wax+][rwaxbt+]*", str(mode)) is not None


def writing(name: str) -> Iterator[str]:
    """Yield what in a file looks like a change of the disk."""
    for called, node in calls(name):
        owner, _, method = called.rpartition(".")
        of_a_path = method in PATH_METHODS and owner not in ("", "os")
        if method in CHANGES_THE_DISK.get(owner, ()) or of_a_path or opens_for_writing(called, node):
            yield called


def test_only_fs_changes_the_disk() -> None:
    found = {(name, called) for name in TREES for called in writing(name) if name not in WRITERS}
    assert found - NOT_WRITING.keys() == set(), "write through lemming/kernel/files/fs.py, or say here why not"
    assert NOT_WRITING.keys() - found == set(), "these exceptions are not needed any more"
    assert all(list(writing(name)) for name in WRITERS)


def test_only_fs_uses_the_system_calls_that_write() -> None:
    users = [name for name in TREES if "kernel.files.disk" in own_imports(name) and not name.startswith("testing")]
    assert users == ["kernel/files/fs.py", "kernel/files/safe_folder.py"]


PEOPLES_FILES = {"ORG_FILE", "MODELS_FILE", "CREDITS_FILE", "CALENDAR_FILE", "resume_file"}
WRITES_PEOPLES_FILES = {
    ("commands/init.py", "paths.resume_file(FIRST_AGENT)"): "a new organisation, in a folder of its own",
    ("evals/case_copy.py", "paths.MODELS_FILE"): "a copy",
    ("evals/case_copy.py", "paths.ORG_FILE"): "a copy",
}


def test_settings_and_resumes_that_are_there_are_changed_through_one_door() -> None:
    holders = {
        name
        for name in TREES
        for node in nodes(name)
        if isinstance(node, ast.ImportFrom)
        and node.module == "lemming.kernel.files.folder_lock"
        and any(alias.name == "lock_folder" for alias in node.names)
    }
    assert holders == {"libraries/settings_edits.py", "read_model/read_model.py"}  # the second: a cache's own folder
    written = {
        (name, ast.unparse(node.args[1]))
        for name in TREES
        for called, node in calls(name)
        if called == "fs.write_atomic" and len(node.args) > 1
        for it in ast.walk(node.args[1])
        if getattr(it, "id", getattr(it, "attr", "")) in PEOPLES_FILES
    }
    assert written - WRITES_PEOPLES_FILES.keys() == set(), "use libraries/settings_edits.py, or say here why not"
    assert WRITES_PEOPLES_FILES.keys() - written == set(), "these exceptions are not needed any more"


def assigned(node: ast.AST) -> list[ast.expr]:
    """Return what a statement gives a value, or takes one from."""
    if isinstance(node, ast.AnnAssign | ast.AugAssign):
        return [node.target]
    targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else []
    return [each for it in targets for each in (it.elts if isinstance(it, ast.Tuple) else [it])]


def kept_by(name: str) -> Iterator[str]:
    """Yield the variables of a module that its functions change."""
    tree = TREES[name]
    variables = {target.id for node in tree.body for target in assigned(node) if isinstance(target, ast.Name)}
    for function in (node for node in nodes(name) if isinstance(node, ast.FunctionDef)):
        for node in ast.walk(function):
            changed = [it.value for it in assigned(node) if isinstance(it, ast.Subscript)]
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                changed += [node.func.value] if node.func.attr in CHANGES_A_VALUE else []
            found = {it.id for it in changed if isinstance(it, ast.Name)}
            found |= set(node.names) if isinstance(node, ast.Global) else set()
            if found & variables:
                yield from found & variables - local_names(function)


def local_names(function: ast.FunctionDef) -> set[str]:
    """Return the names that a function gives a value itself, which are not the module's."""
    shared = {name for node in ast.walk(function) if isinstance(node, ast.Global) for name in node.names}
    own = {it.id for node in ast.walk(function) for it in assigned(node) if isinstance(it, ast.Name)}
    return own - shared


def test_what_a_module_keeps_for_the_whole_process_has_a_reason() -> None:
    found = {(name, variable) for name in TREES for variable in kept_by(name)}
    assert found - OF_THE_PROCESS.keys() == set(), "keep it in a class: `org.own(...)`, or say here why not"
    assert OF_THE_PROCESS.keys() - found == set(), "these exceptions are not needed any more"


def test_no_function_remembers_what_it_found_at_a_path() -> None:
    found = {
        (name, function.name)
        for name in TREES
        for function in nodes(name)
        if isinstance(function, ast.FunctionDef)
        and any("cache" in ast.unparse(it).rpartition(".")[2] for it in function.decorator_list)
        and any(is_about_a_path(argument) for argument in function.args.args)
    }
    assert found == REMEMBERS_A_PATH.keys()


def is_about_a_path(argument: ast.arg) -> bool:
    kind = ast.unparse(argument.annotation) if argument.annotation else ""
    return argument.arg in ("base", "path", "org", "root", "folder", "file") or "Path" in kind
