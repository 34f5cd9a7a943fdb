"""What one caller, one mail or one channel does, or what is at its other end, stops no other."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from callers import SECRET, TOKEN, Caller, served
from channel_polls import poll_once
from doorway import answer_to, arrived, noted, with_channel
from patience import PATIENCE_S, until

from lemming.capabilities.channels.channel import wrap_provider_errors
from lemming.capabilities.channels.channel_status import get_channel_statuses
from lemming.capabilities.channels.email_parser import (
    extract_mail_text,
    get_message_id,
    get_sender,
    iter_attachments,
    parse_mail,
    safe_name,
)
from lemming.engine import run_once
from lemming.kernel.agents import survey_agents
from lemming.kernel.base.clock import SystemClock
from lemming.kernel.base.errors import DiskError, RequestRejected, Unavailable
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation
from lemming.libraries.concurrency.http_server import max_connections
from lemming.libraries.concurrency.supervised_threads import start_supervised_thread
from lemming.libraries.outbox_files import write_person_entry
from lemming.queries.checks.check_registry import CheckRun
from lemming.queries.checks.health_checks import find_health_issues
from lemming.testing import FrozenClock, make_org, resume


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOOR_SECRET", SECRET)
    monkeypatch.setenv("DOOR_TOKEN", TOKEN)


OPTIONS = {"to": "desk", "secret_env": "DOOR_SECRET", "token_env": "DOOR_TOKEN"}


def test_a_thread_that_dies_is_told_of_and_started_again(base: Path) -> None:
    make_org(base, resume("ada"))
    died, over, works = [0], threading.Event(), threading.Event()

    def work() -> None:
        died[0] += 1
        if died[0] < 3:
            raise ValueError("a broken line")
        works.set()

    start_supervised_thread(work, name="lemming-x", base=base, stopped=over, first_pause_s=0.001).join(PATIENCE_S)
    assert (works.is_set(), died) == (True, [3])
    told = [it for it in find_health_issues(CheckRun(Organisation(base))) if it.about == "thread lemming-x"]
    assert "ValueError: a broken line" in told[0].message
    assert (base / "logs/engine.log").read_text().count("thread_died") == 2


def test_a_thread_that_died_begins_nothing_once_all_is_over(base: Path) -> None:
    make_org(base, resume("ada"))
    begun: list[int] = []
    over, told = threading.Event(), base / ".lemming/threads/lemming-x.json"

    def work() -> None:
        begun.append(1)
        raise ValueError("a broken line")

    thread = start_supervised_thread(work, name="lemming-x", base=base, stopped=over, first_pause_s=60.0)
    until(told.exists)
    over.set()
    thread.join(PATIENCE_S)
    assert (told.exists(), thread.is_alive(), len(begun)) == (True, False, 1)


@pytest.mark.parametrize(
    ("raised", "becomes"),
    [
        (ValueError("x"), Unavailable),
        (RecursionError(), Unavailable),
        (RequestRejected("x"), RequestRejected),
        (DiskError("x", concerns_one_file=True), Unavailable),
        (DiskError("full"), DiskError),
    ],
)
def test_what_goes_wrong_in_a_channel_is_its_own_but_a_full_disk(raised: Exception, becomes: type[Exception]) -> None:
    with pytest.raises(becomes), wrap_provider_errors():
        raise raised


@pytest.mark.parametrize("name", ["BETA", "two\nlines", "a b"])
def test_a_folder_that_can_be_no_agents_keeps_no_channel_from_handing_out(base: Path, name: str) -> None:
    box = {"box": {"provider": "folder", "options": {"path": "shared/drop"}}}
    human = resume("human", model={"key": "human"})
    reader = resume("box", model={"key": "box"}, permissions={"read_outboxes": ["*"]})
    make_org(base, human, reader, models=box)
    (base / "agents" / name).mkdir()
    (base / "agents" / name / "resume.json").write_text("{}")
    write_person_entry(
        base, "human", tick=1, kind="message", payload={"text": "x", "target": "box"}, tags=[], created_at=""
    )
    run_once(base, clock=FrozenClock())
    (state,) = get_channel_statuses(Organisation(base), survey_agents(base), load_config(base))
    assert (state.delivered, state.waiting, state.down_why) == (1, 0, "")


@contextmanager
def answering_with(line: bytes) -> Iterator[int]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()

        def answer() -> None:
            caller, _ = listening.accept()
            with caller:
                caller.recv(65536)
                caller.sendall(line)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        thread.join(PATIENCE_S)


def test_a_target_with_a_broken_status_line_is_tried_again_later(base: Path) -> None:
    with answering_with(b"HTTP/1.1 two-hundred\r\n\r\n") as port:
        url = f"http://127.0.0.1:{port}/x"
        with_channel(base, {**OPTIONS, "deliver_to": url}, provider="http")
        with served(base) as caller:
            caller.hook(b'{"text": "hello"}')
        (base / "tick.json").write_text('{"current_tick": 2}')
        answer_to(base, arrived(base)[0], "yes")
        (base / "tick.json").write_text('{"current_tick": 3}')
        poll_once(Organisation(base), SystemClock().now, lambda _: None)
    assert [line["did"] for line in noted(base)] == ["received", "failed"]


@pytest.mark.parametrize("wait", ["nan", "inf", "-inf", "-1", "61", "1e300", "soon", ""])
def test_a_wait_that_is_no_number_of_seconds_is_refused(base: Path, wait: str) -> None:
    with_channel(base, OPTIONS, provider="http")
    with served(base) as caller:
        href = caller.ask(text="?").facts["href"]
        answer = caller.request(f"{href}?wait={wait}")
    assert answer.status == 400
    assert '"wait" must be a number of seconds from 0 to 60' in answer.facts["error"]["message"]


def test_a_body_that_github_signed_is_one_message_under_whatever_delivery(base: Path) -> None:
    import hmac

    with_channel(base, OPTIONS, provider="http")
    body = b'{"action": "opened"}'
    signed = "sha256=" + hmac.new(SECRET.encode(), body, "sha256").hexdigest()
    with served(base) as caller:
        for ident in ("d-1", "d-2", "d-3"):
            told = {"X_GitHub_Delivery": ident, "X_Hub_Signature_256": signed}
            assert caller.call("POST", "/hooks/door", body, **told).status == 202
    assert len(arrived(base)) == 1


@pytest.mark.long
def test_who_only_connects_keeps_nobody_from_asking(base: Path) -> None:
    with_channel(base, OPTIONS, provider="http")
    with served(base) as caller, ExitStack() as held:
        before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
        idle = [held.enter_context(socket.create_connection(("127.0.0.1", caller.port))) for _ in range(150)]
        assert caller.ask(text="Are you there?").status == 202
        if before:
            ours = len(os.listdir("/proc/self/fd")) - before - len(idle)
            assert ours <= max_connections() + 8


STRANGERS = """
import resource, socket, sys, threading
resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
from pathlib import Path
from lemming.capabilities.channels.channel_service import run_channel_server
with run_channel_server(Path(sys.argv[1]), port=0, stop=threading.Event(), report=lambda _: None) as found:
    print(found.port, flush=True)
    sys.stdin.readline()
    kept = [open("/dev/null") for _ in range(16)]
    print("room", flush=True)
"""


def test_descriptors_are_left_for_the_engine(base: Path) -> None:
    with_channel(base, OPTIONS, provider="http")
    with (
        subprocess.Popen(
            [sys.executable, "-c", STRANGERS, str(base)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process,
        ExitStack() as held,
    ):
        assert process.stdin
        assert process.stdout
        port = int(process.stdout.readline())
        for _ in range(120):
            held.enter_context(socket.create_connection(("127.0.0.1", port)))
        assert Caller(port).ask(text="Are you there?").status == 202
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "room\n"


MAILS = [
    b'From: a@far.example\nContent-Type: text/plain; charset="idna"\n\n\xff\xfe hello .. x\n',
    b"From: a@far.example\nContent-Type: text/plain; charset=idna\nContent-Transfer-Encoding: base64\n\n//4u\n",
    b"From: a@far.example\nContent-Disposition: ; =\nContent-Type: text/plain\n\nhello\n",
    b"From: a@far.example\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=x\n\n--x\n"
    b"Content-Disposition: attachment; filename*=utf-8''%E6%97%A5\n\nfile\n--x--\n",
    b"From: =?utf-8?q?A?= <a@far.example>\nSubject: =?x?q?=\n\n",
    b"From: a@far.example\nContent-Type: text/html; charset=utf-16\n\n<p>hi\n",
    b"From: a@far.example\nContent-Type: message/rfc822\n\nSubject: in\n\nbody\n",
    b'From: a@far.example\nContent-Type: multipart/alternative; boundary="y"\n\n--y\n\nplain\n--y\n'
    b"Content-Type: text/html\n\n<b>bold</b>\n--y--\n",
]


def mutants(count: int) -> Iterator[bytes]:
    """Yield mails with letters changed, cut out and doubled, the same each time."""
    chance = random.Random(7)
    for _ in range(count):
        raw = bytearray(chance.choice(MAILS))
        for _ in range(chance.randint(1, 6)):
            at = chance.randrange(len(raw))
            what = chance.randrange(3)
            if what == 0:
                raw[at] = chance.choice(b"\x00;=\"'*?<>%@\xff\n:,")
            elif what == 1:
                del raw[at : at + chance.randint(1, 5)]
            else:
                raw[at:at] = raw[at : at + 9]
            raw = raw or bytearray(b"x")
        yield bytes(raw)


def test_no_mail_raises_more_than_its_own_refusal() -> None:
    for raw in [*MAILS, *mutants(400)]:
        try:
            with wrap_provider_errors():
                mail = parse_mail(raw)
                ident = get_message_id(mail, raw)
                get_sender(mail)
                assert isinstance(extract_mail_text(mail), str)
                for attachment in iter_attachments(mail, ident):
                    assert len(attachment.name.encode()) < 250
        except Unavailable:
            pass


def test_a_charset_that_cannot_read_costs_letters_and_not_the_mail() -> None:
    assert "hello" in extract_mail_text(parse_mail(MAILS[0]))


def test_the_name_of_an_attachment_fits_into_a_file_system() -> None:
    assert len(safe_name("報" * 100 + ".pdf").encode()) <= 200
    assert safe_name("報" * 100 + ".pdf").endswith(".pdf")
