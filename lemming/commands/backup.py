"""`lemming backup` and `lemming restore`: pack an organisation into one file, and unpack the file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from lemming.commands.command_context import CommandContext, argument, option, parse_seconds
from lemming.commands.terminal import format_count, one_line, print_data, print_json, print_notice, print_warning
from lemming.operations.backup_archive import restore_backup as put_in_place
from lemming.operations.backup_writer import create_backup, resolve_archive_path

_MAX_OMISSIONS_SHOWN = 10
WAIT_S = 60.0


def backup(
    context: CommandContext,
    file: Annotated[Path, argument("FILE", "Output file (.tar.gz), or a folder.")],
    force: Annotated[bool, option("--force", "Overwrite an existing file.")] = False,
    wait: Annotated[
        float | None,
        option(
            "--wait DURATION",
            "While an engine runs: maximum wait for a pause between ticks. Default: 1m.",
            parser=parse_seconds,
        ),
    ] = None,
) -> None:
    """Back up the organisation to one file: agents, entries, memories, settings, journals, logs.

    The backup holds the state between two ticks, also while an engine runs: the command retries until no tick
    falls into the backup. The file appears only when complete, and only you can read the file. Excluded are
    .git, .lemming (`lemming history on` rebuilds the history from the journals) and __pycache__. Keys are
    included only if you keep them in the organisation's folder.

    \b
    Examples:
      lemming backup ~/backups/
      lemming backup /mnt/news.tar.gz --force
    """
    base = context.org
    target = resolve_archive_path(base, Path(os.path.abspath(file.expanduser())))
    result = create_backup(base, target, wait_s=WAIT_S if wait is None else wait, replace=force)
    manifest = result.manifest
    facts = {"file": str(result.file), "bytes": result.archive_bytes, "tick": manifest.tick}
    contents = {"agents": manifest.agents, "files": manifest.files, "content_bytes": manifest.content_bytes}
    print_json("backup", {**facts, **contents, "left_out": result.left_out})
    print_data(str(result.file))
    agents, files = format_count(len(manifest.agents), "agent"), format_count(manifest.files, "file")
    size, content = format_size(result.archive_bytes), format_size(manifest.content_bytes)
    print_notice(f"{size}: tick {manifest.tick} is next, {agents}, {files} with {content}")
    for text in result.left_out[:_MAX_OMISSIONS_SHOWN]:
        print_warning(f"left out: {one_line(text, 200)}")
    if len(result.left_out) > _MAX_OMISSIONS_SHOWN:
        print_warning(f"left out: {len(result.left_out) - _MAX_OMISSIONS_SHOWN} more (--json lists all)")
    print_notice(f"`lemming restore {result.file} DIR` restores an organisation from it")


def format_size(number: int) -> str:
    """Format a number of bytes for people.

    >>> format_size(999), format_size(1_500_000)
    ('999 bytes', '1.5 MB')
    """
    if number < 10_000:
        return format_count(number, "byte")
    return f"{number / 1e3:.0f} kB" if number < 1_000_000 else f"{number / 1e6:.1f} MB"


def restore(
    context: CommandContext,
    file: Annotated[Path, argument("FILE", "Backup file written by `lemming backup`.")],
    folder: Annotated[Path, argument("[DIR]", "Target folder: empty or new. Default: the current folder.")] = Path(),
    max_bytes: Annotated[
        int | None,
        option("--max-bytes N", "Unpack at most N bytes. Default: 256 MiB and 100 times the file size.", min=1),
    ] = None,
) -> None:
    """Restore an organisation from a backup.

    The archive is unpacked next to the target folder and compared with the manifest before anything is
    replaced. A damaged or truncated archive, or an archive with paths outside the folder, leaves nothing
    behind. The restored organisation continues with the next tick after the backup; later entries and costs
    are not in the backup.

    \b
    Examples:
      lemming restore ~/backups/news-20261122T090000Z.tar.gz news
      lemming -C news verify
    """
    target = Path(os.path.abspath(folder.expanduser()))
    restored = put_in_place(Path(os.path.abspath(file.expanduser())), target, max_bytes=max_bytes)
    facts = {"org": str(restored.folder), "tick": restored.tick, "agents": restored.manifest.agents}
    print_json("restored", {**facts, "files": restored.manifest.files, "broken": restored.broken})
    print_data(str(restored.folder))
    agents = ", ".join(restored.manifest.agents) or "nobody"
    count = format_count(len(restored.manifest.agents), "agent")
    print_notice(f"tick {restored.tick} is next; {count}: {one_line(agents, 300)}")
    print_notice(f"made on {restored.manifest.made_at[:16]}Z of {one_line(restored.manifest.org, 80)}")
    for name, reason in restored.broken.items():
        print_warning(f"{name}: {one_line(reason, 400)}")
    print_notice(f"`lemming -C {folder} verify` checks every file against the journals")
