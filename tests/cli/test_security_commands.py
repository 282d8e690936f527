"""`kohort users`, `kohort acls` and `kohort quotas` on a broker with SASL and an authorizer."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kohort import Admin, AuthenticationFailed, AuthorizationFailed, Consumer, Producer
from kohort.broker.running import running
from kohort.cli.frame.exit_codes import ExitCode
from kohort.cli.main import main
from kohort.log.datadir import META
from kohort.security.credentials_file import parse_credentials
from tests.cli.command_line import Ran, run_at_terminal, run_kohort
from tests.client.secured import ADMIN, PASSWORD, login, secured_broker

Run = Callable[..., Ran]
SECRET = "correct horse, battery = staple"


@pytest.fixture(scope="module")
def broker() -> Iterator[running]:
    with secured_broker() as started:
        yield started


def client_file(folder: Path, broker: running, **changes: str) -> Path:
    """The properties file of a client."""
    file = folder / "admin.properties"
    settings = {**login(broker), **{name.replace("_", "."): value for name, value in changes.items()}}
    file.write_text("".join(f"{name}={escaped(str(value))}\n" for name, value in settings.items()))
    return file


def escaped(text: str) -> str:
    return text.replace("\\", "\\\\")


@pytest.fixture
def kohort(broker: running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command as the administrator."""
    monkeypatch.setenv("KOHORT_CONFIG", str(client_file(tmp_path, broker)))
    return run_kohort


def listed(ran: Ran) -> Any:
    assert ran.code == 0, ran.err
    return json.loads(ran.out)


# --- users --------------------------------------------------------------------------------------------


def test_a_user_is_added_listed_changed_and_removed(broker: running, kohort: Run, tmp_path: Path) -> None:
    added = kohort("users", "add", "alice", "--password-stdin", stdin=f"{SECRET}\n".encode())
    assert added.lines == ["alice: added (SCRAM-SHA-512, 4096 iterations)"]
    with Admin(login(broker, "alice", SECRET, "SCRAM-SHA-512")) as theirs:
        assert theirs.describe_cluster().nodes
    file = tmp_path / "password"
    file.write_text("another\r\nand no password\n")
    both = ("--mechanism", "SCRAM-SHA-256", "--mechanism", "scram-sha-512", "--iterations", "5000")
    changed = kohort("users", "add", "alice", "--password-file", str(file), *both)
    assert changed.lines == [
        "alice: added (SCRAM-SHA-256, 5000 iterations)",
        "alice: new password (SCRAM-SHA-512, 5000 iterations)",
    ]
    with Admin(login(broker, "alice", "another", "SCRAM-SHA-256")) as theirs:
        assert theirs.describe_cluster().nodes
    with (
        Admin(login(broker, "alice", SECRET, "SCRAM-SHA-512")) as theirs,
        pytest.raises(AuthenticationFailed),
    ):
        theirs.describe_cluster()
    assert listed(kohort("users", "list", "--json")) == [
        {"user": "alice", "mechanism": "SCRAM-SHA-256", "iterations": 5000},
        {"user": "alice", "mechanism": "SCRAM-SHA-512", "iterations": 5000},
    ]
    assert kohort("users", "list", "alice").lines[1].split() == ["alice", "SCRAM-SHA-256", "5000"]
    assert kohort("users", "remove", "alice").code == ExitCode.WRONG_USAGE  # nobody can be asked
    one = kohort("users", "remove", "alice", "--mechanism", "SCRAM-SHA-256", "--yes")
    assert one.lines == ["alice: removed (SCRAM-SHA-256)"]
    assert kohort("users", "remove", "alice", "--yes").lines == ["alice: removed (SCRAM-SHA-512)"]
    assert "there are no users" in kohort("users", "list").err


def test_what_is_wrong_with_a_user_is_said(kohort: Run, tmp_path: Path) -> None:
    nobody = kohort("users", "remove", "nobody", "--yes")
    assert (nobody.code, nobody.out) == (ExitCode.NOT_FOUND, b"")
    assert "there is no user nobody" in nobody.err
    assert kohort("users", "list", "nobody").code == ExitCode.NOT_FOUND
    few = kohort("users", "add", "bob", "--iterations", "10", "--password-stdin", stdin=b"x\n")
    assert few.code == ExitCode.FAILED
    assert "UNACCEPTABLE_CREDENTIAL" in few.err
    unasked = kohort("users", "add", "bob")
    assert unasked.code == ExitCode.WRONG_USAGE
    assert "--password-stdin or --password-file" in unasked.err
    assert "is empty" in kohort("users", "add", "bob", "--password-stdin", stdin=b"\n").err
    missing = kohort("users", "add", "bob", "--password-file", str(tmp_path / "none"))
    assert missing.code == ExitCode.FAILED
    assert kohort("users", "add", "bob", "secret").code == ExitCode.WRONG_USAGE  # a password is no argument


def test_no_secret_is_printed_or_logged(kohort: Run, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    ran = kohort("users", "add", "carol", "--password-stdin", stdin=f"{SECRET}\n".encode())
    assert ran.code == 0
    assert kohort("users", "remove", "carol", "--yes").code == 0
    said = ran.out.decode() + ran.err + caplog.text
    assert SECRET not in said
    assert PASSWORD not in said


def test_the_password_is_asked_for_twice_and_not_shown(kohort: Run, broker: running) -> None:
    first, again = "Password of typed: ", "The same again: "
    typed = ((first, "wrong"), (again, "other"), (first, "typed secret"), (again, "typed secret"))
    ran = run_at_terminal("users", "add", "typed", typed=typed)
    assert ran.code == 0
    assert ran.out.startswith(b"typed: added")
    assert "secret" not in ran.err
    assert "do not match" in ran.err
    with Admin(login(broker, "typed", "typed secret", "SCRAM-SHA-512")) as theirs:
        assert theirs.describe_cluster().nodes


def test_the_first_user_is_made_before_the_first_start(tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert run_kohort("users", "list", "--data", str(data)).code == ExitCode.FAILED
    assert not data.exists()
    add = ("users", "add", ADMIN, "--data", str(data), "--password-stdin")
    assert run_kohort(*add, stdin=SECRET.encode()).lines == ["admin: added (SCRAM-SHA-512, 4096 iterations)"]
    assert run_kohort("users", "list", "--data", str(data)).lines[1].split()[:2] == [ADMIN, "SCRAM-SHA-512"]
    for path in data.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes()
    with secured_broker(data) as broker:
        with Admin(login(broker, ADMIN, SECRET, "SCRAM-SHA-512")) as admin:
            assert set(admin.describe_user_scram_credentials()) == {ADMIN}
        running_now = run_kohort(*add, stdin=b"x")
        assert running_now.code == ExitCode.FAILED
        assert str(data) in running_now.err
    remove = ("users", "remove", ADMIN, "--data", str(data), "--yes")
    assert run_kohort(*remove).lines == ["admin: removed (SCRAM-SHA-512)"]
    assert run_kohort(*remove).code == ExitCode.NOT_FOUND
    many = run_kohort(*add, "--iterations", "100000", stdin=b"x")
    assert "4096 to 16384" in many.err
    other = run_kohort(
        "users", "add", "a", "--data", str(tmp_path / "b"), "--node-id", "7", "--password-stdin", stdin=b"x"
    )
    assert other.code == 0
    assert json.loads((tmp_path / "b" / META).read_bytes())["node_id"] == 7


def test_users_of_plain_are_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "users"
    words = ("--credentials-file", str(file))
    assert run_kohort("users", "add", "alice b", *words, "--password-stdin", stdin=b"s").code == 0
    assert file.stat().st_mode & 0o777 == 0o600
    assert parse_credentials(file.read_text())["alice b"].matches("s")
    file.chmod(0o640)
    assert run_kohort("users", "add", "bob", *words, "--password-stdin", stdin=b"t").code == 0
    assert file.stat().st_mode & 0o777 == 0o640
    rows = listed(run_kohort("users", "list", *words, "--json"))
    assert [(row["user"], row["mechanism"]) for row in rows] == [("alice b", "PLAIN"), ("bob", "PLAIN")]
    assert run_kohort("users", "remove", "bob", *words, "--yes").code == 0
    assert list(parse_credentials(file.read_text())) == ["alice b"]
    for wrong in (
        ("--iterations", "5000"),
        ("--mechanism", "SCRAM-SHA-512"),
        ("--data", str(tmp_path)),
        ("--bootstrap", "h:1"),
    ):
        assert run_kohort("users", "add", "x", *words, *wrong, "--password-stdin", stdin=b"t").code == 2


def test_a_broker_takes_the_users_of_the_file_and_those_that_are_added_later(tmp_path: Path) -> None:
    file = tmp_path / "users"
    words = ("--credentials-file", str(file), "--password-stdin")
    assert run_kohort("users", "add", "alice", *words, stdin=b"first").code == 0
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.credentials.file": str(file),
    }
    with running(settings=settings) as broker:
        for user, password in (("alice", "first"), ("bob", "second")):
            assert run_kohort("users", "add", user, *words, stdin=password.encode()).code == 0
            with Admin(login(broker, user, password)) as theirs:
                assert theirs.describe_cluster().nodes
        assert run_kohort("users", "remove", "alice", *words[:2], "--yes").code == 0
        with Admin(login(broker, "alice", "first")) as theirs, pytest.raises(AuthenticationFailed):
            theirs.describe_cluster()


# --- ACLs ---------------------------------------------------------------------------------------------


@pytest.fixture
def no_acls(broker: running) -> Iterator[None]:
    yield
    ran = run_kohort("acls", "remove", "--all", "--yes")
    assert ran.code in (0, ExitCode.NOT_FOUND)


CONSUMER_ACLS = ("--allow", "alice", "--consumer", "--topic", "orders", "--group", "billing")


def test_acls_are_added_listed_and_removed(kohort: Run, no_acls: None) -> None:
    dry = kohort("acls", "add", *CONSUMER_ACLS, "--dry-run")
    assert [line.partition(": ")[0] for line in dry.lines] == ["would be added"] * 3
    assert "there are no ACLs" in kohort("acls", "list").err
    assert len(kohort("acls", "add", *CONSUMER_ACLS).lines) == 3
    again = listed(kohort("acls", "add", *CONSUMER_ACLS, "--host", "127.0.0.1", "--host", "*", "--json"))
    assert (len(again["added"]), len(again["there"])) == (3, 3)
    rows = listed(kohort("acls", "list", "--group", "billing", "--json"))
    assert {row["host"] for row in rows} == {"*", "127.0.0.1"}
    assert rows[0] == {
        "principal": "User:alice", "permission": "ALLOW", "operation": "READ", "resource_type": "GROUP",
        "resource_name": "billing", "pattern_type": "LITERAL", "host": "*",
    }  # fmt: skip
    prefixed = ("--deny", "User:bob", "--operation", "all", "--topic", "ord", "--prefix")
    assert kohort("acls", "add", *prefixed).lines[0].startswith("added: DENY ALL to User:bob")
    assert len(kohort("acls", "list", "--topic", "orders").lines) == 1 + 4
    assert len(kohort("acls", "list", "--topic", "orders", "--matching").lines) == 1 + 5
    assert len(kohort("acls", "list", "--principal", "bob").lines) == 1 + 1
    assert "no ACL is selected" in kohort("acls", "list", "--principal", "carol").err
    assert len(kohort("acls", "remove", *CONSUMER_ACLS, "--host", "127.0.0.1", "--dry-run").lines) == 3
    assert len(kohort("acls", "remove", *CONSUMER_ACLS, "--yes").lines) == 6
    assert kohort("acls", "remove", *CONSUMER_ACLS, "--yes").code == ExitCode.NOT_FOUND
    assert len(kohort("acls", "list").lines) == 1 + 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("add", "--allow", "alice", "--operation", "read"), "what it is about"),
        (("add", "--topic", "orders", "--operation", "read"), "say who"),
        (("add", "--topic", "orders", "--allow", "alice"), "what they may do"),
        (("add", "--topic", "orders", "--allow", "alice", "--consumer"), "--group NAME"),
        (("add", "--cluster", "--topic", "t", "--allow", "alice", "--producer"), "--operation"),
        (("add", "--topic", "orders", "--allow", "alice", "--operation", "eat"), "Invalid value"),
        (("list", "--topic", "orders", "--prefix", "--matching"), "say one of them"),
        (("remove", "--yes"), "or --all"),
        (("remove", "--all", "--topic", "orders", "--yes"), "or --all"),
    ],
)
def test_what_is_missing_is_said(kohort: Run, words: tuple[str, ...], says: str) -> None:
    ran = kohort("acls", *words)
    assert ran.code == ExitCode.WRONG_USAGE
    assert says in ran.err


def test_acls_let_a_producer_and_a_consumer_work(broker: running, kohort: Run, no_acls: None) -> None:
    for user in ("writer", "reader"):
        assert kohort("users", "add", user, "--password-stdin", stdin=user.encode()).code == 0
    as_writer = login(broker, "writer", "writer", "SCRAM-SHA-512")
    as_reader = login(broker, "reader", "reader", "SCRAM-SHA-512")
    with Producer(as_writer) as producer, pytest.raises(AuthorizationFailed):
        producer.send("mine", value=b"x").result(20)
    assert kohort("acls", "add", "--allow", "writer", "--producer", "--topic", "mine").code == 0
    with Producer(as_writer) as producer:
        producer.send("mine", value=b"x").result(20)
    assert (
        kohort(
            "acls", "add", "--allow", "reader", "--consumer", "--topic", "mi", "--group", "g", "--prefix"
        ).code
        == 0
    )
    with Consumer(as_reader, group_id="group", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["mine"])
        assert next(iter(consumer)).value == b"x"
        with pytest.raises(AuthorizationFailed):
            consumer.end_offsets([("other", 0)])
    refused = client_refused(kohort, broker, as_reader)
    assert refused.code == ExitCode.NOT_ALLOWED
    assert "CLUSTER_AUTHORIZATION_FAILED" in refused.err


def client_refused(kohort: Run, broker: running, settings: dict[str, object]) -> Ran:
    """What a user sees that may not see ACLs."""
    file = Path(os.environ["KOHORT_CONFIG"]).with_name("reader.properties")
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return kohort("acls", "list", "--config", str(file))


def test_a_cluster_without_an_authorizer_is_told_how_to_get_one() -> None:
    with running() as open_broker:
        for words in (("list",), ("add", *CONSUMER_ACLS)):
            ran = run_kohort("acls", *words, "--bootstrap", open_broker.bootstrap_servers)
            assert ran.code == ExitCode.FAILED
            assert "authorizer.class.name=" in ran.err


# --- quotas -------------------------------------------------------------------------------------------


def test_quotas_are_set_listed_and_removed(kohort: Run) -> None:
    first = kohort("quotas", "set", "--user", "alice", "producer_byte_rate=1000", "request_percentage=12.5")
    assert first.lines == [
        "user alice: producer_byte_rate: none → 1000",
        "user alice: request_percentage: none → 12.5",
    ]
    dry = kohort("quotas", "set", "--user", "alice", "producer_byte_rate=5", "--dry-run")
    assert dry.lines == ["user alice: producer_byte_rate: 1000 → 5 (dry run)"]
    for entity in (("--user", "alice", "--client-id", "app"), ("--default-user",), ("--default-client-id",)):
        assert kohort("quotas", "set", *entity, "consumer_byte_rate=2000").code == 0
    assert kohort("quotas", "set", "--ip", "127.0.0.9", "connection_creation_rate=50").code == 0
    rows = listed(kohort("quotas", "list", "--json"))
    assert {"user": "alice", "quotas": {"producer_byte_rate": 1000.0, "request_percentage": 12.5}} in rows
    assert {"user": "<default>", "quotas": {"consumer_byte_rate": 2000.0}} in rows
    assert len(rows) == 5
    assert len(listed(kohort("quotas", "list", "--user", "alice", "--json"))) == 2
    assert kohort("quotas", "list", "--ip", "127.0.0.9").lines[1].split() == [
        "-", "-", "127.0.0.9", "connection_creation_rate", "50",
    ]  # fmt: skip
    gone = kohort("quotas", "remove", "--user", "alice", "producer_byte_rate", "--yes")
    assert gone.lines == ["user alice: producer_byte_rate: 1000 → none"]
    assert (
        kohort("quotas", "remove", "--user", "alice", "producer_byte_rate", "--yes").code
        == ExitCode.NOT_FOUND
    )
    for entity in (("--user", "alice"), ("--user", "alice", "--client-id", "app"), ("--default-user",),
                   ("--default-client-id",), ("--ip", "127.0.0.9")):  # fmt: skip
        assert kohort("quotas", "remove", *entity, "--yes").code == 0
    assert kohort("quotas", "remove", "--user", "alice", "--yes").code == ExitCode.NOT_FOUND
    assert "there are no such quotas" in kohort("quotas", "list").err


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("producer_byte_rate=1",), 2, "say for whom"),
        (("--ip", "127.0.0.1", "--user", "a", "connection_creation_rate=1"), 2, "stands alone"),
        (("--user", "a", "--default-user", "producer_byte_rate=1"), 2, "say one of them"),
        (("--user", "a", "producer_byte_rate"), 2, "KEY=VALUE"),
        (("--user", "a", "producer_byte_rate=many"), 2, "write a number"),
        (("--user", "a", "produce=1"), 2, "the keys are"),
        (("--user", "a", "connection_creation_rate=1"), 1, "INVALID_REQUEST"),
        (("--user", "a", "producer_byte_rate=-1"), 1, "INVALID_REQUEST"),
    ],
)
def test_what_is_wrong_with_a_quota_is_said(
    kohort: Run, words: tuple[str, ...], code: int, says: str
) -> None:
    ran = kohort("quotas", "set", *words)
    assert ran.code == code
    assert says in ran.err


def test_users_are_completed(
    kohort: Run, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert kohort("users", "add", "dora", "--password-stdin", stdin=b"x").code == 0
    monkeypatch.setenv("_KOHORT_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "kohort acls add --allow do")
    monkeypatch.setenv("COMP_CWORD", "4")
    with pytest.raises(SystemExit):
        main([])
    assert "dora" in capfd.readouterr().out
