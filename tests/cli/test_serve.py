"""`kohort serve` as a person uses it: a real process, its words, its exit codes."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kohort.cli.frame.exit_codes import ExitCode
from kohort.client.io.blocking_connection import BlockingConnection
from kohort.wire.messages.metadata import MetadataRequest
from tests.broker.peer import batch_of, create_topic, fetch, produce, values_in

KOHORT = str(Path(sys.executable).parent / "kohort")
READY = re.compile(r"Kohort is ready: bootstrap\.servers=(\S+) ")


class Serve:
    """A `kohort serve` process; ends with the test."""

    def __init__(self, *arguments: object) -> None:
        self.process = subprocess.Popen(
            [KOHORT, "serve", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )

    def address(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = READY.match(line)
        assert found, (line, self.process.stderr and self.process.stderr.read())
        return found[1]

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Exit code and standard error."""
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=90)
        return self.process.returncode, errors

    def __enter__(self) -> Serve:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=90)


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [KOHORT, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False
    )


def test_one_line_when_ready_that_names_the_free_port_it_took(tmp_path):
    with Serve(tmp_path / "data", "--listen", "127.0.0.1:0") as broker:
        address = broker.address()
        assert not address.endswith(":0")
        with BlockingConnection(address) as client:
            assert client.call(MetadataRequest(None), version=9).brokers[0].port == int(
                address.rpartition(":")[2]
            )
        assert broker.stop()[0] == 0


@pytest.mark.usefixtures("ctrl_c")
def test_sigterm_and_ctrl_c_keep_what_was_written(tmp_path):
    for number, value in ((signal.SIGTERM, b"one"), (signal.SIGINT, b"two")):
        with Serve(tmp_path, "--listen", "127.0.0.1:0") as broker:
            with BlockingConnection(broker.address()) as client:
                create_topic(client, "kept")
                assert produce(client, "kept", batch_of(value)).error_code == 0
            assert broker.stop(number)[0] == 0
    with Serve(tmp_path, "--listen", "127.0.0.1:0") as broker, BlockingConnection(broker.address()) as client:
        assert values_in(fetch(client, "kept")) == [b"one", b"two"]


def test_in_the_background_of_a_script_it_ignores_ctrl_c_and_ends_with_sigterm(tmp_path):
    """There the shell has it ignore SIGINT, so that a Ctrl-C meant for the script does not end the broker."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        broker = Serve(tmp_path, "--listen", "127.0.0.1:0")
    finally:
        signal.signal(signal.SIGINT, before)
    with broker:
        address = broker.address()
        broker.process.send_signal(signal.SIGINT)
        with BlockingConnection(address) as client:
            create_topic(client, "kept")
            assert produce(client, "kept", batch_of(b"one")).error_code == 0
        assert broker.stop()[0] == 0


def test_clients_are_told_the_advertised_address(tmp_path):
    with Serve(tmp_path, "--listen", "127.0.0.1:0", "--advertise", "broker.example:1234") as broker:
        assert broker.address() == "broker.example:1234"


def test_a_properties_file_of_kafka_says_where_to_listen_and_what_clients_are_told(tmp_path):
    settings = tmp_path / "server.properties"
    settings.write_text(
        "listeners=PLAINTEXT://127.0.0.1:0\nadvertised.listeners=PLAINTEXT://broker.example:1234\n"
    )
    with Serve(tmp_path / "data", "--config", settings) as broker:
        assert broker.address() == "broker.example:1234"
    with Serve(tmp_path / "data2", "--config", settings, "--advertise", "other.example:5") as broker:
        assert broker.address() == "other.example:5"


def test_a_directory_in_use_is_refused_with_the_pid_of_who_uses_it(tmp_path):
    with Serve(tmp_path, "--listen", "127.0.0.1:0") as first:
        first.address()
        refused = run("serve", tmp_path, "--listen", "127.0.0.1:0")
        assert refused.returncode == 1
        assert str(first.process.pid) in refused.stderr
        assert "Traceback" not in refused.stderr


def test_a_busy_port_is_refused_with_what_to_do(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        refused = run("serve", tmp_path, "--listen", f"127.0.0.1:{taken.getsockname()[1]}")
    assert refused.returncode == 1
    assert "in use" in refused.stderr
    assert "--listen" in refused.stderr


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("num.partition=3", "num.partitions"),
        ("num.partitions=many", "num.partitions"),
        ("num.partitions=0", "num.partitions"),
        ("durability=ssd", "disk"),
        ("no-equals-sign", "NAME=VALUE"),
        ("group.min.session.timeout.ms=9999999", "group.max.session.timeout.ms"),
    ],
)
def test_a_wrong_setting_stops_the_start_and_says_what_is_right(tmp_path, setting, words):
    refused = run("serve", tmp_path, "--listen", "127.0.0.1:0", "--set", setting)
    assert refused.returncode == 1
    assert words in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize("listen", ["9092x", "127.0.0.1:99999", "127.0.0.1"])
def test_a_wrong_address_is_refused_with_an_example(tmp_path, listen):
    refused = run("serve", tmp_path, "--listen", listen)
    assert refused.returncode == 1
    assert "127.0.0.1:9092" in refused.stderr


def test_settings_from_a_file_and_set_over_it(tmp_path):
    (tmp_path / "server.properties").write_text(
        "# as Kafka's\nnum.partitions=4\nauto.create.topics.enable = false\n"
    )
    options = [
        "--config",
        tmp_path / "server.properties",
        "--set",
        "num.partitions=2",
        "--set",
        "num.io.threads=8",
    ]
    with Serve(tmp_path / "data", "--listen", "127.0.0.1:0", *options) as broker:
        with BlockingConnection(broker.address()) as client:
            assert create_topic(client, "t", partitions=-1).num_partitions == 2
        code, errors = broker.stop()
    assert code == 0
    assert "num.io.threads" in errors, "a setting without effect is named"


def test_logs_as_json_lines(tmp_path):
    with Serve(tmp_path, "--listen", "127.0.0.1:0", "--log-format", "json") as broker:
        broker.address()
        _, errors = broker.stop()
    lines = [json.loads(line) for line in errors.splitlines()]
    assert {"time", "level", "logger", "message"} <= lines[0].keys()
    assert lines[-1]["message"] == "stopped"


def test_memory_needs_no_directory(tmp_path):
    with Serve(tmp_path / "none", "--listen", "127.0.0.1:0", "--set", "durability=memory") as broker:
        with BlockingConnection(broker.address()) as client:
            create_topic(client, "t")
            assert produce(client, "t", batch_of(b"x")).error_code == 0
        assert broker.stop()[0] == 0
    assert not (tmp_path / "none").exists()


def test_verify_finds_a_damaged_batch_and_names_it(tmp_path):
    with Serve(tmp_path, "--listen", "127.0.0.1:0") as broker:
        with BlockingConnection(broker.address()) as client:
            create_topic(client, "t")
            for number in range(3):
                produce(client, "t", batch_of(b"value %d" % number))
        broker.stop()
    assert run("verify", tmp_path).returncode == 0
    segment = tmp_path / "t-0" / "00000000000000000000.log"
    data = bytearray(segment.read_bytes())
    at = data.index(b"value 1")
    data[at] ^= 0xFF
    segment.write_bytes(data)
    found = run("verify", tmp_path)
    assert found.returncode == 1
    assert "t-0" in found.stdout
    assert "offset 1" in found.stdout
    assert run("verify", tmp_path / "nowhere").returncode == 1


def test_more_clients_than_open_files_wait_and_the_log_goes_on(tmp_path):
    """With a limit of 200 open files and many partitions in use."""
    limited = 'ulimit -n 200 && exec "$0" serve "$1" --listen 127.0.0.1:0'
    process = subprocess.Popen(
        ["sh", "-c", limited, KOHORT, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    clients = []
    try:
        assert process.stdout is not None
        found = READY.match(process.stdout.readline())
        assert found
        clients = [BlockingConnection(found[1]) for _ in range(60)]
        first = clients[0]
        create_topic(first, "many", partitions=250)
        for partition in range(250):
            assert produce(first, "many", batch_of(b"x"), partition).error_code == 0
        assert clients[30].call(MetadataRequest([]), version=5).brokers, "segment files leave room"
        clients[-1].send(MetadataRequest([]), version=5)
        assert produce(first, "many", batch_of(b"y")).base_offset == 1
        for client in clients[1:-1]:
            client.close()
        assert clients[-1].receive().brokers
    finally:
        for client in clients:
            client.close()
        process.terminate()
        process.communicate(timeout=90)


def test_nobody_listens(tmp_path):
    impatient = tmp_path / "client.properties"
    impatient.write_text("default.api.timeout.ms=500\nrequest.timeout.ms=500\n")
    answer = run("groups", "why", "g", "--bootstrap", "127.0.0.1:1", "--config", str(impatient))
    assert answer.returncode == ExitCode.NO_ANSWER
    assert "--bootstrap" in answer.stderr


# --- the directory and the listeners


def test_log_dirs_says_where_the_data_is(tmp_path):
    for name in ("log.dirs", "log.dir"):
        place = tmp_path / name
        with Serve("--listen", "127.0.0.1:0", "--set", f"{name}={place}") as broker:
            broker.address()
            assert broker.stop()[0] == 0
        assert (place / "meta.json").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["{0}/a", "--set", "log.dirs={0}/b"], "given twice"),
        (["--set", "log.dirs={0}/a,{0}/b"], "names 2 directories"),
        (
            ["{0}/a", "--set", "listeners=SASL_PLAINTEXT://127.0.0.1:0"],
            "sasl.enabled.mechanisms=SCRAM-SHA-512",
        ),
        (["{0}/a", "--set", "listeners=PLAINTEXT://0.0.0.0:0"], "advertised.listeners"),
        (["{0}/a", "--set", "authorizer.class.name=x.Authorizer"], "authorizer.class.name"),
    ],
)
def test_what_cannot_be_done_as_it_is_asked_for_stops_the_start(tmp_path, arguments, words):
    refused = run("serve", *(text.format(tmp_path) for text in arguments))
    assert refused.returncode == 1
    assert words in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not list(tmp_path.iterdir())


def test_the_same_directory_twice_is_one(tmp_path):
    with Serve(tmp_path, "--listen", "127.0.0.1:0", "--set", f"log.dirs={tmp_path}") as broker:
        broker.address()
        assert broker.stop()[0] == 0


def test_a_line_for_each_listener(tmp_path):
    listeners = "listeners=PLAINTEXT://127.0.0.1:0,LAN://localhost:0"
    protocols = "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,LAN:PLAINTEXT"
    with Serve(tmp_path, "--set", listeners, "--set", protocols) as broker:
        first = broker.address()
        assert broker.process.stdout is not None
        line = broker.process.stdout.readline()
        assert line.startswith("listener LAN: bootstrap.servers=localhost:")
        for address in (first, line.strip().partition("=")[2]):
            with BlockingConnection(address) as client:
                (node,) = client.call(MetadataRequest(None), version=9).brokers
                assert f"{node.host}:{node.port}" == address
        assert broker.stop()[0] == 0
