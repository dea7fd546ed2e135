"""Mistakes: one line on stderr, the documented exit code, no traceback."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import redelivery.cli

if TYPE_CHECKING:
    from pathlib import Path

    from redelivery_memory import MemoryBroker

MEMORY = "memory://mistakes"


@pytest.mark.parametrize(
    ("args", "code", "named"),
    [
        (["consme"], 2, "did you mean 'consume'?"),
        (["--colour"], 2, "--colour"),
        (["demo", "--nope"], 2, "no option '--nope'"),
        (["demo", "extra"], 2, "takes no argument 'extra'"),
        (["policy", "explian"], 2, "no command 'explian'; did you mean 'explain'?"),
        (["policy", "x"], 2, "no command 'x'; there are convert, explain, options"),
        (["send", "--tl", "5"], 2, "no option '--tl'; did you mean '--ttl'? (see redelivery send --help)"),
        (["send", "--json"], 2, "did you mean '--output json'?"),
        (["send", MEMORY, "a", "--ttl"], 2, "--ttl needs a value"),
        (["send", MEMORY, "a", "--lines=3"], 2, "--lines takes no value"),
        (["send", MEMORY, "a", "--ttl", "x"], 2, "send: --ttl must be a duration of 1 ms or more: 30s"),
        (
            ["send", MEMORY, "a", "--priority", "-1"],
            2,
            "--priority must be a whole number from 0 to 9, not '-1'",
        ),
        (["consume", MEMORY, "a", "--idle", "nan"], 2, "--idle must be a duration, more than 0: 30s"),
        (
            ["consume", MEMORY, "a", "--output", "jsno"],
            2,
            "table, json or jsonl, not 'jsno'; did you mean 'json'?",
        ),
        (
            ["consume", MEMORY, "a", "--ordering", "no"],
            2,
            "must be non_blocking, blocking or per_group, not 'no'",
        ),
        (["send", "memory://a/b", "q", "x"], 78, "memory:// takes a name and no path: memory://name"),
        (["demo", "--delay", "soon"], 2, "'soon'"),
        (["demo", "--output", "xml"], 2, "xml"),
        (["consume"], 2, "needs [URI] DEST"),
        (["consume", "orders"], 2, "REDELIVERY_URL"),
        (["consume", MEMORY], 2, "one destination"),
        (["send", "localhost:61613", "orders"], 2, "write stomp://localhost:61613"),
        (["consume", "tcp://a:61616", "orders"], 78, "OpenWire"),
        (["consume", MEMORY, "a", "b"], 2, "one destination"),
        (["consume", MEMORY, "a", "--workers", "0"], 2, "--workers"),
        (["consume", MEMORY, "a", "--count", "1.5"], 2, "1.5"),
        (["consume", MEMORY, "a", "--idle", "0"], 2, "--idle"),
        (["consume", MEMORY, "a", "--handler", "os:getcwd", "--exec", "cat"], 2, "not both"),
        (["consume", MEMORY, "a", "--poison-on", "65"], 2, "--poison-on is about the exit status"),
        (["consume", MEMORY, "a", "--exec", "cat", "--poison-on", "0"], 2, "from 1 to 255"),
        (["consume", MEMORY, "a", "--exec", "cat", "--poison-on", "1", "--discard-on", "2,1"], 2, "status 1"),
        (["consume", MEMORY, "a", "--handler", "getcwd"], 78, "module:function"),
        (["consume", MEMORY, "a", "--handler", "no_such_module:f"], 78, "No module named 'no_such_module'"),
        (["consume", MEMORY, "a", "--handler", "os:getcwdd"], 78, "did you mean 'getcwd'"),
        (["consume", MEMORY, "a", "--handler", "os:sep"], 78, "is no function but str"),
        (["consume", MEMORY, "a", "--exec", "no-such-command x"], 78, "'no-such-command'"),
        (["consume", MEMORY, "a", "--exec", " "], 78, "--exec"),
        (["consume", MEMORY, "a\nb"], 78, "control character"),
        (["consume", MEMORY, "topic://a", "--subscription", "s"], 78, "jms.clientID"),
        (["consume", MEMORY, "a", "--workers", "2", "--ordering", "blocking"], 78, "workers=2"),
        (["consume", "kafka://a:1", "a"], 78, "kafka"),
        (["consume", "tcp://a:1", "a"], 78, "memory, stomp"),
        (["consume", f"{MEMORY}?redelivery.credits=1", "a"], 78, "did you mean 'redelivery.credit'"),
        (["consume", "stomp://user:hunter2@a:61613?nope=1", "a"], 78, "unknown option"),
        (["send", MEMORY, "a", "b", "c"], 2, "one body"),
        (["send", MEMORY, "a", "--file", "no-such-file"], 2, "no-such-file"),
        (["send", MEMORY, "a", "b", "--header", "x"], 2, "NAME=VALUE"),
        (["send", MEMORY, "a", "b", "--header", "x=1", "--header", "x=2"], 2, "given twice"),
        (["send", MEMORY, "a", "b", "--priority", "10"], 2, "--priority"),
        (["send", MEMORY, "a", "b", "--lines"], 2, "body once"),
        (["policy", "explain", MEMORY], 2, "--destination"),
        (["policy", "explain", MEMORY, "--destination", "a", "--plot", "a.gif"], 2, ".png or .svg"),
        (
            ["policy", "explain", MEMORY, "--destination", "a", "--plot", "no/where.png"],
            2,
            "no such directory",
        ),
        (["policy", "explain", MEMORY, "--destination", "queu://a"], 78, "queue://"),
    ],
)
def test_mistake(cli: Any, args: list[str], code: int, named: str) -> None:
    """A mistake is named in one line."""
    ended = cli(*args)
    assert (ended.code, ended.out) == (code, "")
    assert named in ended.error
    assert "hunter2" not in ended.error


def test_a_place_is_no_queue(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With REDELIVERY_URL, too, a host and port is no destination."""
    monkeypatch.setenv("REDELIVERY_URL", MEMORY)
    ended = cli("send", "localhost:61613", "orders")
    assert ended.code == 2
    assert "'localhost:61613' is no URI: write stomp://localhost:61613" in ended.error


def test_nobody_answers(cli: Any) -> None:
    """A closed port is exit code 69, for consuming and sending alike."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        uri = f"stomp://127.0.0.1:{unused.getsockname()[1]}"
        for args in (["consume", uri, "orders"], ["send", uri, "orders", "body"]):
            ended = cli(*args)
            assert (ended.code, ended.out) == (69, "")
            assert f"{uri}: cannot connect: Connection refused" in ended.error


def test_handler_that_breaks_while_it_is_imported(cli: Any, tmp_path: Path) -> None:
    """Any exception while a handler's module is imported is one line."""
    (tmp_path / "broken.py").write_text("raise RuntimeError('no\\nlicence')")
    (tmp_path / "leaving.py").write_text("import sys; sys.exit(5)")
    for module, named in (("broken", "RuntimeError: no licence"), ("leaving", "SystemExit: 5")):
        ended = cli("consume", MEMORY, "a", "--handler", f"{module}:handle")
        assert ended.code == 78
        assert named in ended.error


@pytest.mark.parametrize(
    ("package", "args", "extra"),
    [
        ("rich", ["policy", "options"], "cli"),
        ("matplotlib", ["policy", "explain", MEMORY, "--destination", "a", "--plot", "a.png"], "plot"),
    ],
)
def test_missing_package(
    cli: Any, monkeypatch: pytest.MonkeyPatch, package: str, args: list[str], extra: str
) -> None:
    """A package that is not installed is named, with the extra that brings it."""
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    ended = cli(*args)
    assert (ended.code, ended.out) == (78, "")
    assert ended.error == f"redelivery: needs {package}: pip install 'redelivery[{extra}]'"


def test_missing_click(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Without click there is one line, not a traceback; the version is still printed."""
    monkeypatch.setitem(sys.modules, "click", None)
    monkeypatch.delitem(sys.modules, "redelivery.cli.app")
    for args, code in (([], 78), (["--version"], 0)):
        monkeypatch.setattr(sys, "argv", ["redelivery", *args])
        with pytest.raises(SystemExit) as ended:
            redelivery.cli.main()
        assert ended.value.code == code
    captured = capsys.readouterr()
    assert captured.err == "redelivery: needs click: pip install 'redelivery[cli]'\n"
    assert captured.out == f"redelivery {redelivery.__version__}\n"


def test_reader_goes_away(shop: MemoryBroker) -> None:
    """A pipe that is closed at the other end ends a command quietly."""
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as closed:
        ended = subprocess.run(
            [sys.executable, "-m", "redelivery.cli", "policy", "options", "--output", "jsonl"],
            stdout=closed,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_what_stomp_py_logs_is_never_shown(cli: Any, capfd: pytest.CaptureFixture[str]) -> None:
    """Log records of stomp.py, which have whole frames with the password, are never shown, however verbose."""
    cli("policy", "options", "-vv")
    logging.getLogger("stomp.py").info("Sending frame: %s", [b"CONNECT", b"passcode:hunter2\n"])
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(("verbose", "frames"), [("-v", False), ("-vv", True)])
def test_verbosity_of_frames(cli: Any, capfd: pytest.CaptureFixture[str], verbose: str, frames: bool) -> None:
    """Frames are shown from -vv on."""
    cli("policy", "options", verbose)
    capfd.readouterr()
    logging.getLogger("redelivery.wire").debug("-> ACK")
    assert capfd.readouterr().err == ("debug: -> ACK\n" if frames else "")


def test_version_and_help(cli: Any) -> None:
    """Help has examples and exit codes; each command has one."""
    assert cli("--version").out == f"redelivery {redelivery.__version__}\n"
    assert "Exit codes:" in cli().out
    alone = cli("policy")
    assert (alone.code, alone.err) == (0, "")
    assert alone.out == cli("policy", "--help").out
    for command in ("demo", "consume", "send"):
        assert "Examples:" in cli(command, "--help").out
    assert "Examples:" in cli("policy", "explain", "-h").out


@pytest.mark.parametrize(
    "command",
    ["", "demo", "consume", "send", "policy", "policy explain", "policy options", "policy convert", "dlq"],
)
def test_help_fits_on_a_terminal(cli: Any, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    """No line of any help is wider than 80 columns, examples and all."""
    monkeypatch.setenv("COLUMNS", "80")
    ended = cli(*command.split(), "--help")
    assert (ended.code, ended.err) == (0, "")
    assert [line for line in ended.out.splitlines() if len(line) > 80] == []


def test_missing_proton(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without proton one sentence names the extra, and the packages that it is compiled with."""
    for name in [name for name in sys.modules if name.partition(".")[0] in ("proton", "redelivery_amqp")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "proton", None)
    ended = cli("send", "amqp://localhost", "orders", "x")
    assert (ended.code, ended.out) == (78, "")
    assert "pip install 'redelivery[amqp]'" in ended.error
    assert "libssl-dev" in ended.error
