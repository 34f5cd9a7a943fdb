"""The workload through the real SDK: a server answers as the API does; sides are measured in one run."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.real import measuring
from benchmarks.real.server import CONTRACT, PLAIN, run_server


def ask(url: str, path: str, times: int) -> list[object]:
    """Ask several times over one connection, all at once; return what the answers hold."""

    async def asking() -> list[object]:
        host, _, port = url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        body = b'{"model": "m"}'
        writer.write(f"POST {path} HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        for _ in range(times - 1):  # in pieces, as a network has them
            writer.write(f"POST {path} HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n".encode())
            await writer.drain()
            writer.write(body)
        contents = []
        for _ in range(times):
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
            answer = json.loads(await reader.readexactly(length))
            contents.append(json.loads(answer["choices"][0]["message"]["content"]))
        writer.close()
        await writer.wait_closed()
        return contents

    return asyncio.run(asking())


def test_the_server_answers_each_request_in_the_form_of_its_path() -> None:
    with run_server(0.0) as url:
        assert ask(url, "/v1/chat/completions", 3) == [PLAIN] * 3
        assert ask(url, "/contract/v1/chat/completions", 2) == [CONTRACT] * 2


@pytest.mark.long
def test_a_side_is_measured_in_rounds_and_with_many_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = measuring.SIDES[measuring.OURS]
    for name, value in {"SIDES": {measuring.OURS: ours}, "FLOOR": measuring.OURS}.items():
        monkeypatch.setattr(measuring, name, value)
    for name, number in {"AGENTS": 2, "MANY_AGENTS": 3, "WARM_TICKS": 1, "TICKS_PER_ROUND": 1, "DELAY_S": 0.0}.items():
        monkeypatch.setattr(measuring, name, number)
    results = tmp_path / "results.json"
    main(["real", "--rounds", "1", "--dir", str(tmp_path), "--results", str(results)])
    found = json.loads(results.read_text())["measurements"]
    assert [row["figure"] for row in found] == [measuring.CPU, measuring.TURNS, measuring.WALL]
    assert all(row["value"] > 0 for row in found)
    assert "LeMMing" in capsys.readouterr().out
