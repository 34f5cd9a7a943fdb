"""`lemming backup` and `lemming restore`: the whole organisation in one file, and one made of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from lemming.commands.options import Here, argument, duration, option
from lemming.commands.screen import counted, one_line, show, show_json, tell
from lemming.service.backup import back_up, place_for
from lemming.service.restore import restore as put_in_place

LEFT_OUT_SHOWN = 10
WAIT_S = 60.0


def backup(
    here: Here,
    file: Annotated[
        Path,
        argument("FILE", "A name that ends in .tar.gz, or a folder to put it into."),
    ],
    force: Annotated[bool, option("--force", "Replace what is there.")] = False,
    wait: Annotated[
        float | None,
        option(
            "--wait DURATION",
            "Beside an engine: how long to wait for a moment between two ticks. Default: 1m.",
            parser=duration,
        ),
    ] = None,
) -> None:
    """Write the whole organisation into one file: agents, entries, memories, settings, journals, logs.

    It is as the organisation stood between two ticks, also while an engine runs: then it is made again until
    no tick has come in between. The file appears when it is whole, readable by you only. Left out are .git,
    .lemming (`lemming history on` makes the history anew from the journals) and __pycache__. Keys are in it
    only if you keep them in the organisation's folder.

    \b
    Examples:
      lemming backup ~/backups/
      lemming backup /mnt/news.tar.gz --force
    """
    base = here.org
    place = place_for(base, Path(os.path.abspath(file.expanduser())))
    made = back_up(base, place, wait_s=WAIT_S if wait is None else wait, replace=force)
    manifest = made.manifest
    if here.as_json:
        facts = {"file": str(made.file), "bytes": made.archive_bytes, "tick": manifest.tick}
        held = {"agents": manifest.agents, "files": manifest.files, "content_bytes": manifest.content_bytes}
        show_json("backup", {**facts, **held, "left_out": made.left_out})
        return
    show(str(made.file))
    agents, files = counted(len(manifest.agents), "agent"), counted(manifest.files, "file")
    size, content = size_in_words(made.archive_bytes), size_in_words(manifest.content_bytes)
    tell(f"{size}: tick {manifest.tick} is next, {agents}, {files} with {content}")
    for text in made.left_out[:LEFT_OUT_SHOWN]:
        tell(f"left out: {one_line(text, 200)}", style="yellow")
    if len(made.left_out) > LEFT_OUT_SHOWN:
        tell(f"left out: {len(made.left_out) - LEFT_OUT_SHOWN} more (--json names them)", style="yellow")
    tell(f"`lemming restore {made.file} DIR` makes an organisation of it")


def size_in_words(number: int) -> str:
    """Return a number of bytes as a person reads it.

    >>> size_in_words(999), size_in_words(1_500_000)
    ('999 bytes', '1.5 MB')
    """
    if number < 10_000:
        return counted(number, "byte")
    return f"{number / 1e3:.0f} kB" if number < 1_000_000 else f"{number / 1e6:.1f} MB"


def restore(
    here: Here,
    file: Annotated[Path, argument("FILE", "What `lemming backup` wrote.")],
    folder: Annotated[
        Path, argument("[DIR]", "Empty, or made if need be. Default: the current folder.")
    ] = Path(),
    max_bytes: Annotated[
        int | None,
        option(
            "--max-bytes N",
            "Unpack at most N bytes. Default: 256 MiB, and 100 times the size of the file.",
            min=1,
        ),
    ] = None,
) -> None:
    """Put the organisation that a backup holds into a folder.

    The archive is unpacked beside its place and compared with what it says it holds; only then it is put in
    place. One that is damaged, cut short, or holds what would lead out of the folder leaves nothing behind.
    It goes on with the tick that was next then: what was written and spent later it does not know.

    \b
    Examples:
      lemming restore ~/backups/news-20261122T090000Z.tar.gz news
      lemming -C news verify
    """
    place = Path(os.path.abspath(folder.expanduser()))
    done = put_in_place(Path(os.path.abspath(file.expanduser())), place, max_bytes=max_bytes)
    if here.as_json:
        facts = {"org": str(done.folder), "tick": done.tick, "agents": done.manifest.agents}
        show_json("restored", {**facts, "files": done.manifest.files, "broken": done.broken})
        return
    show(str(done.folder))
    agents = ", ".join(done.manifest.agents) or "nobody"
    tell(f"tick {done.tick} is next; {counted(len(done.manifest.agents), 'agent')}: {one_line(agents, 300)}")
    tell(f"made on {done.manifest.made_at[:16]}Z of {one_line(done.manifest.org, 80)}")
    for name, why in done.broken.items():
        tell(f"{name}: {one_line(why, 400)}", style="yellow")
    tell(f"`lemming -C {folder} verify` checks every file against the journals")
