"""A work tree that a hostile worker leaves: every program of it that runs touches a file beside `mark`."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

_SCRIPT = r"""
mkdir -p .git/hooks
for h in post-checkout pre-commit post-index-change reference-transaction post-merge update pre-receive; do
  printf '#!/bin/sh\ntouch "%s-hook"\n' "$MARK" > .git/hooks/$h; chmod +x .git/hooks/$h
done
git config core.fsmonitor "touch $MARK-fsmonitor; false"; git config core.hooksPath "$PWD/.git/hooks"
git config filter.evil.clean "touch $MARK-clean; cat"; git config filter.evil.process "touch $MARK-process"
git config diff.evil.textconv "touch $MARK-textconv; cat"; git config diff.external "touch $MARK-external"
git config merge.evil.driver "touch $MARK-driver; true"; git config core.sshCommand "touch $MARK-ssh"
git config core.alternateRefsCommand "touch $MARK-refs"; git config core.worktree /
printf '* filter=evil diff=evil merge=evil\n*.u16 working-tree-encoding=UTF-16\n*.txt eol=crlf ident\n' > .gitattributes
echo not-utf16 > bad.u16; printf 'a\r\nb $Id$\n' > mixed.txt; printf 'caf\351 changed\n' > latin.txt
ln -s /etc/passwd out-link; ln -s ../../.. up-link; ln -s .git/config git-link; ln -s mixed.txt inner-link
rm shared.txt; ln -s /etc shared.txt; rm -r src; ln -s /etc src
git init -q nested; git -C nested config core.fsmonitor "touch $MARK-nested; false"
(cd nested; echo n > n.txt; git add -A; git -c user.name=a -c user.email=a@b.invalid commit -qm n; echo m >> n.txt)
git init -q empty-nested; echo e > empty-nested/e.txt
mkdir gitfile; echo "gitdir: $USER_GIT" > gitfile/.git; echo g > gitfile/g.txt
mkdir bare; cp .git/HEAD bare/HEAD; mkdir -p bare/objects bare/refs; touch bare/objects/x bare/refs/x
printf '[core]\n\tfsmonitor = touch %s-bare\n' "$MARK" > bare/config
mkdir -p .GIT 'a/.git '; echo x > .GIT/config; echo x > 'a/.git /config'; echo x > 'git~1'
echo 1 > Case.txt; echo 2 > case.txt; mkdir Deep deep2; echo 1 > Deep/x; mkdir DEEP; echo 2 > DEEP/y
printf '[submodule "x"]\n\tpath = x\n\turl = ext::sh -c "touch %s-submodule"\n' "$MARK" > .gitmodules
printf x > "$(printf 'new\nline')"; printf x > "$(printf 'bad\377name')"; printf x > -rf; printf x > ':(top)x'; printf x > '"q"'
truncate -s 200G huge.bin; head -c 6000000 /dev/zero > big.bin; mkfifo pipe; mkdir rules; mkfifo rules/.gitignore
printf '#!/bin/sh\n' > run.sh; chmod +x run.sh; : > empty.txt; mkdir -p build; echo o > build/x.o; echo s > a.secret
printf '*.o\nbuild/\n*.secret\nnode_modules/\n' > .gitignore; mkdir node_modules; echo m > node_modules/m.js
mkdir .claude .codex; echo '{}' > .claude/settings.json; echo x > .codex/config.toml; echo x > AGENTS.md
mkdir long; cd long; for i in $(seq 120); do mkdir "$NAME" && cd -P "$NAME" || exit 1; done; echo d > file
"""


def make_hostile_tree(clone: Path, mark: Path, user_git: Path) -> None:
    """Run the hostile worker in a clone."""
    env = {
        **os.environ,
        "MARK": str(mark),
        "USER_GIT": str(user_git),
        "NAME": "d" * 47,
        "GIT_CONFIG_GLOBAL": os.devnull,
    }
    subprocess.run(["bash", "-c", _SCRIPT], cwd=clone, env=env, check=True, capture_output=True)


def point_git_to(clone: Path, user_git: Path) -> None:
    """Replace the clone's repository by a file that leads to the user's."""
    (clone / ".git").rename(clone.parent / "old-git")
    (clone / ".git").write_text(f"gitdir: {user_git}\n")
