"""`--help` of every command: an example that works, and options that are explained."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from kohort import Admin, Consumer
from kohort.cli.main import main
from kohort.testing import Kafka
from tests.cli.commands import commands, parse
from tests.client.secured import login, secured_broker
from tests.clients.process import eventually

COMMANDS = dict(commands())
EXAMPLE = re.compile(r"^  Example: (.*)$", re.MULTILINE)
# These do not end by themselves, or need Spark, a minute, or a terminal. Their own tests run them; here it is checked
# that click takes what they are shown with.
PARSED = {
    "serve", "demo", "top", "console", "sim", "doctor", "doctor spark", "groups watch", "pipeline", "pipeline new",
    "pipeline test", "pipeline run", "pipeline status", "pipeline stop", "bench", "bench produce", "bench consume",
    "bench commit", "bench rebalance",
}  # fmt: skip
# What an example needs besides two topics and some groups: the words, and those that are run before.
BEFORE = {"topics": ["topics delete orders --yes"], "topics create": ["topics delete orders --yes"]}
# These are run on a broker with SASL and an authorizer.
SECURED = ("users", "acls", "quotas")
BEFORE_SECURED = {
    "users remove": "users add alice --password-file alice.password",
    "acls remove": "acls add --allow alice --consumer --topic orders --group billing",
    "quotas remove": "quotas set --user alice producer_byte_rate=1048576",
}


def help_of(words: str) -> str:
    command = COMMANDS[words]
    context = click.Context(command, info_name=f"kohort {words}", max_content_width=100)
    return command.get_help(context)


@pytest.mark.parametrize("words", COMMANDS)
def test_help_has_a_sentence_options_that_are_explained_and_one_example(words: str) -> None:
    text = help_of(words)
    assert len(EXAMPLE.findall(text)) == 1, text
    assert re.search(r"(?m)^  [A-Z][^\n]+", text.split("\n\n")[1]), text
    for parameter in COMMANDS[words].params:
        if isinstance(parameter, click.Option):
            explained = parameter.help or isinstance(parameter.type, click.Choice)
            assert explained, f"{words}: {parameter.opts[0]} says nothing"


@pytest.fixture
def place(kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder and a cluster in which the examples can be run: topics, groups, a member that is asked to leave."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KOHORT_BOOTSTRAP", kafka.bootstrap_servers)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "client.properties").write_text(f"bootstrap.servers={kafka.bootstrap_servers}\n")
    for topic in ("orders", "returns"):
        kafka.create_topic(topic, partitions=3)
        kafka.produce(topic, [{"value": f"{n}", "key": "k", "partition": n % 3} for n in range(600)])
    settings = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "group.id": "orders",
        "group.instance.id": "checkout-1",
        "enable.auto.commit": False,  # its last commit would wait 30 s for a topic that an example deletes
    }
    with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin, Consumer(settings) as consumer:
        for group in ("audit", "billing"):
            admin.alter_group_offsets(group, {("orders", n): 1 for n in range(3)})
        consumer.subscribe(["orders"])
        eventually(lambda: consumer.poll(0.1) or consumer.assignment(), "it has its partitions")
        yield tmp_path


@pytest.mark.parametrize("words", [words for words in COMMANDS if words.split()[0] in SECURED])
def test_the_example_of_a_command_about_security_works(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "alice.password").write_text("secret\n")
    (example,) = EXAMPLE.findall(help_of(words))
    with secured_broker() as broker:
        settings = {name: str(value).replace("\\", "\\\\") for name, value in login(broker).items()}
        (tmp_path / "admin.properties").write_text("".join(f"{n}={value}\n" for n, value in settings.items()))
        monkeypatch.setenv("KOHORT_CONFIG", "admin.properties")
        if before := BEFORE_SECURED.get(words):
            assert main(before.split()) == 0
        assert main(shlex.split(example)[1:]) == 0, capfd.readouterr().err


@pytest.mark.parametrize(
    "words", [words for words in COMMANDS if words not in PARSED and words.split()[0] not in SECURED]
)
def test_the_example_of_a_command_works(words: str, place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (example,) = EXAMPLE.findall(help_of(words))
    for line in BEFORE.get(words, []):
        assert main(line.split()) == 0
    if words == "verify":
        pytest.skip("tests/cli/test_serve.py runs it on the directory of a broker")
    line = re.sub(r"--bootstrap \S+", "", example).replace(
        "kohort", f"{sys.executable} -m kohort.cli.main", 1
    )
    Path(place / ".local/share/bash-completion/completions").mkdir(parents=True)
    if re.search(r"[|>]", example):  # a shell is needed
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
    else:
        code = main(shlex.split(re.sub(r"--bootstrap \S+", "", example))[1:])
        assert code == 0, capfd.readouterr().err


@pytest.mark.parametrize("words", sorted(PARSED & COMMANDS.keys()))
def test_the_example_of_a_command_that_is_not_run_here_is_taken(words: str) -> None:
    (example,) = EXAMPLE.findall(help_of(words))
    assert parse(shlex.split(example)[1:]).command in COMMANDS.values()


def test_every_command_that_is_only_parsed_is_one() -> None:
    assert COMMANDS.keys() >= PARSED


def test_a_word_that_is_no_command_says_what_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["group"]) == 2
    assert "No such command 'group'" in capsys.readouterr().err
    assert main(["groups", "lst"]) == 2
    assert main([]) == 2
    assert "Commands:" in capsys.readouterr().err
