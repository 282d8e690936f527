"""`kohort users`, `acls` and `quotas` on an Apache Kafka with an authorizer; Kafka's own tools, its console clients,
kafkajs and franz-go on our broker with SASL and an authorizer."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks import outside

from kohort import Admin, AuthenticationFailed
from kohort.broker.running import running
from kohort.cli.frame.exit_codes import ExitCode
from tests.cli.command_line import run_kohort
from tests.client.secured import ADMIN, AUTHORIZER, PASSWORD, login, secured_broker

from .apache_kafka import PASSWORD as KAFKAS_PASSWORD
from .apache_kafka import USER, ApacheKafka, start
from .conftest import HERE, Run, run
from .test_java_tools import TOOLS
from .test_our_groups_command import eventually

pytestmark = pytest.mark.interop
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def properties(file: Path, user: str, password: str, mechanism: str = "PLAIN") -> Path:
    """The file of a Java client."""
    module = _PLAIN if mechanism == "PLAIN" else _SCRAM
    quoted = password.replace("\\", "\\\\").replace('"', '\\"')
    jaas = f'{module} required username="{user}" password="{quoted}";'
    escaped = jaas.replace("\\", "\\\\")
    file.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config={escaped}\n"
    )
    return file


# --- our commands on Apache Kafka ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    kafka = start(
        tmp_path_factory.mktemp("guarded"),
        f"authorizer.class.name={AUTHORIZER}",
        f"super.users=User:ANONYMOUS;User:{USER}",
    )
    yield kafka
    kafka.target.kill()


@pytest.fixture
def on_kafka(guarded_kafka: ApacheKafka, tmp_path: Path) -> Callable[..., Any]:
    """`kohort …` as the super user of the Apache Kafka; what it prints with --json, or its lines."""
    file = properties(tmp_path / "admin.properties", USER, KAFKAS_PASSWORD)

    def call(*words: str, code: int = 0, stdin: bytes = b"") -> Any:
        cluster = ("--bootstrap", guarded_kafka.address("SASL"), "--config", str(file))
        ran = run_kohort(*words, *cluster, stdin=stdin)
        assert ran.code == code, ran.err
        return json.loads(ran.out) if "--json" in words and not code else ran.lines

    return call


def test_users_of_apache_kafka(guarded_kafka: ApacheKafka, on_kafka: Callable[..., Any]) -> None:
    assert on_kafka("users", "add", "carol,=", "--password-stdin", stdin=b"a = b,\n") == [
        "carol,=: added (SCRAM-SHA-512, 4096 iterations)"
    ]
    settings = {
        "bootstrap.servers": guarded_kafka.address("SASL"),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "carol,=",
        "sasl.password": "a = b,",
    }

    def logs_in() -> bool:
        with Admin(settings) as theirs:
            return bool(theirs.describe_cluster(timeout=5).nodes)

    eventually(logs_in, "the new user can log in")
    rows = on_kafka("users", "list", "--json")
    assert {"user": "carol,=", "mechanism": "SCRAM-SHA-512", "iterations": 4096} in rows
    on_kafka("users", "add", "carol,=", "--iterations", "100", "--password-stdin", stdin=b"x", code=1)
    assert on_kafka("users", "remove", "carol,=", "--yes") == ["carol,=: removed (SCRAM-SHA-512)"]

    def is_refused() -> bool:
        with Admin(settings) as theirs, pytest.raises(AuthenticationFailed):
            theirs.describe_cluster(timeout=5)
        return True

    eventually(is_refused, "the user is gone")
    on_kafka("users", "remove", "carol,=", "--yes", code=ExitCode.NOT_FOUND)


def test_acls_of_apache_kafka_as_kafkas_own_tool_shows_them(
    guarded_kafka: ApacheKafka, on_kafka: Callable[..., Any], java: Run
) -> None:
    words = ("--allow", "dora", "--producer", "--consumer", "--topic", "orders-", "--group", "g", "--prefix")
    assert len(on_kafka("acls", "add", *words, "--json")["added"]) == 5
    assert len(on_kafka("acls", "add", *words, "--json")["there"]) == 5
    on_kafka("acls", "add", "--deny", "*", "--operation", "alter", "--cluster", "--host", "10.0.0.1")
    rows = on_kafka("acls", "list", "--topic", "orders-eu", "--matching", "--json")
    assert {row["operation"] for row in rows} == {"WRITE", "DESCRIBE", "CREATE", "READ"}
    shown = java(f"{TOOLS}AclCommand", "--bootstrap-server", guarded_kafka.bootstrap_servers, "--list")
    assert "name=orders-, patternType=PREFIXED" in shown
    assert "principal=User:dora, host=*, operation=CREATE, permissionType=ALLOW" in shown
    assert "principal=User:*, host=10.0.0.1, operation=ALTER, permissionType=DENY" in shown
    assert len(on_kafka("acls", "remove", *words, "--yes", "--json")["removed"]) == 5
    assert len(on_kafka("acls", "list", "--json")) == 1
    on_kafka("acls", "remove", *words, "--yes", code=ExitCode.NOT_FOUND)


def test_quotas_of_apache_kafka_as_kafkas_own_tool_shows_them(
    guarded_kafka: ApacheKafka, on_kafka: Callable[..., Any], java: Run
) -> None:
    on_kafka("quotas", "set", "--user", "erin", "--client-id", "app", "producer_byte_rate=1000")
    on_kafka("quotas", "set", "--default-user", "request_percentage=12.5")
    on_kafka("quotas", "set", "--ip", "127.0.0.9", "connection_creation_rate=7")
    on_kafka("quotas", "set", "--user", "erin", "connection_creation_rate=7", code=1)
    eventually(lambda: len(on_kafka("quotas", "list", "--json")) == 3, "the quotas are there")
    server = ("--bootstrap-server", guarded_kafka.bootstrap_servers, "--describe")
    both = ("--entity-type", "users", "--entity-type", "clients")
    shown = java("kafka.admin.ConfigCommand", *server, *both)
    assert "user-principal 'erin', client-id 'app' are producer_byte_rate=1000.0" in shown
    assert on_kafka("quotas", "list", "--user", "erin", "--json") == [
        {"user": "erin", "client_id": "app", "quotas": {"producer_byte_rate": 1000.0}}
    ]
    for entity in (("--user", "erin", "--client-id", "app"), ("--default-user",), ("--ip", "127.0.0.9")):
        on_kafka("quotas", "remove", *entity, "--yes")
    eventually(lambda: on_kafka("quotas", "list", "--json") == [], "the quotas are gone")


# --- Kafka's tools and clients on our broker ----------------------------------------------------------


@pytest.fixture(scope="module")
def guarded() -> Iterator[running]:
    with secured_broker() as broker:
        yield broker


@pytest.fixture
def as_admin(guarded: running, tmp_path: Path) -> tuple[str, ...]:
    """The options by which Kafka's tools reach our broker as its super user."""
    file = properties(tmp_path / "admin.properties", ADMIN, PASSWORD)
    return "--bootstrap-server", guarded.bootstrap_servers, "--command-config", str(file)


def test_kafka_acls_on_our_broker(guarded: running, as_admin: tuple[str, ...], java: Run) -> None:
    tool = f"{TOOLS}AclCommand"
    add = "--add --allow-principal User:alice --consumer --topic orders- --group g --resource-pattern-type prefixed"
    java(tool, *as_admin, *add.split())
    deny = "--add --deny-principal User:bob --operation Write --topic orders"
    java(tool, *as_admin, *deny.split())
    with Admin(login(guarded)) as admin:
        assert len(admin.describe_acls()) == 4
        shown = java(tool, *as_admin, "--list", "--topic", "orders-x", "--resource-pattern-type", "match")
        assert "principal=User:alice, host=*, operation=READ, permissionType=ALLOW" in shown
        assert "User:bob" not in shown
        java(
            tool,
            *as_admin,
            "--remove",
            "--force",
            "--topic",
            "orders-",
            "--resource-pattern-type",
            "prefixed",
        )
        assert {acl.resource_name for acl in admin.describe_acls()} == {"g", "orders"}
        java(tool, *as_admin, "--remove", "--force", "--topic", "orders")
        java(tool, *as_admin, "--remove", "--force", "--group", "g", "--resource-pattern-type", "prefixed")
        assert admin.describe_acls() == []


def test_kafka_configs_makes_users_and_quotas_of_our_broker(
    guarded: running, as_admin: tuple[str, ...], java: Run
) -> None:
    tool, of_alice = "kafka.admin.ConfigCommand", ("--entity-type", "users", "--entity-name", "alice")
    for credential in (
        "SCRAM-SHA-256=[iterations=8192,password=alice-secret]",
        "SCRAM-SHA-512=[password=alice-secret]",
    ):
        java(tool, *as_admin, "--alter", "--add-config", credential, *of_alice)
    java(tool, *as_admin, "--alter", "--add-config", "producer_byte_rate=1000000", *of_alice)
    shown = java(tool, *as_admin, "--describe", *of_alice)
    assert "producer_byte_rate=1000000.0" in shown
    assert "SCRAM-SHA-256=iterations=8192, SCRAM-SHA-512=iterations=4096" in shown
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        with Admin(login(guarded, "alice", "alice-secret", mechanism)) as theirs:
            assert theirs.describe_cluster().nodes
    java(tool, *as_admin, "--alter", "--delete-config", "SCRAM-SHA-256", *of_alice)
    java(tool, *as_admin, "--alter", "--delete-config", "producer_byte_rate", *of_alice)
    with Admin(login(guarded)) as admin:
        (left,) = admin.describe_user_scram_credentials("alice")["alice"]
        assert left.mechanism.sasl_name == "SCRAM-SHA-512"
        assert admin.describe_client_quotas() == {}


@pytest.fixture
def frank(guarded: running, tmp_path: Path) -> Iterator[str]:
    """A user with ACLs for a topic and a group; its password is a hard one."""
    password = 'f = r, "a" \\ nk'
    admin_file = properties(tmp_path / "admin.properties", ADMIN, PASSWORD)
    cluster = ("--bootstrap", guarded.bootstrap_servers, "--config", str(admin_file))
    acls = (
        "--allow",
        "frank",
        "--producer",
        "--consumer",
        "--topic",
        "mail",
        "--group",
        "readers",
        "--prefix",
    )
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        add = ("users", "add", "frank", "--mechanism", mechanism, "--password-stdin")
        assert run_kohort(*add, *cluster, stdin=password.encode()).code == 0
    assert run_kohort("acls", "add", *acls, *cluster).code == 0
    yield password
    assert run_kohort("acls", "remove", "--all", "--yes", *cluster).code == 0


def test_javas_console_clients_log_in_by_scram(
    guarded: running, frank: str, java: Run, tmp_path: Path
) -> None:
    file = properties(tmp_path / "frank.properties", "frank", frank, "SCRAM-SHA-512")
    server = ("--bootstrap-server", guarded.bootstrap_servers, "--command-config", str(file))
    java(f"{TOOLS}ConsoleProducer", *server, "--topic", "mail-java", stdin="one\ntwo\n")
    read = ("--topic", "mail-java", "--group", "readers-java", "--from-beginning", "--max-messages", "2")
    said = java(f"{TOOLS}consumer.ConsoleConsumer", *server, *read, "--timeout-ms", "30000")
    assert said.split() == ["one", "two"]


@pytest.mark.parametrize("mechanism", ["plain", "scram-sha-256", "scram-sha-512"])
def test_kafkajs_logs_in(guarded: running, frank: str, mechanism: str) -> None:
    folder = outside.node_modules({"kafkajs": "2.2.4", "kafkajs-snappy": "1.1.0"})
    shutil.copy(HERE / "node" / "login.js", folder)
    user, password = (ADMIN, PASSWORD) if mechanism == "plain" else ("frank", frank)
    topic, group = f"mail-{mechanism}", f"readers-{mechanism}"
    with Admin(login(guarded)) as admin:
        admin.create_topic(topic)
    command = [outside.program("node"), "login.js", guarded.bootstrap_servers, mechanism, user]
    said = json.loads(run([*command, password, topic, group], cwd=folder))
    assert said == {"value": f"from {mechanism}"}
    refused = json.loads(run([*command, "wrong", topic, group], cwd=folder))
    assert (
        refused["error"].startswith("KafkaJSSASLAuthenticationError")
        or "authentication" in str(refused).lower()
    )


@pytest.fixture(scope="module")
def franz_go(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs go/main.go with franz-go."""
    built = tmp_path_factory.mktemp("go") / "login"
    run([outside.program("go"), "build", "-o", str(built), "."], cwd=HERE / "go", timeout_s=300)
    return lambda *arguments: run([str(built), *arguments])


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_franz_go_logs_in(guarded: running, frank: str, franz_go: Run, mechanism: str) -> None:
    user, password = (ADMIN, PASSWORD) if mechanism == "PLAIN" else ("frank", frank)
    names = (f"mail-go-{mechanism}", f"readers-go-{mechanism}")
    with Admin(login(guarded)) as admin:
        admin.create_topic(names[0])
    assert franz_go(guarded.bootstrap_servers, mechanism, user, password, *names) == f"from {mechanism}\n"
    assert "SASL" in franz_go(guarded.bootstrap_servers, mechanism, user, "wrong", *names)
