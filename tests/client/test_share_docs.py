"""docs/share-groups.md: every example is run against a broker, and names only settings that there are."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kohort import Admin, Producer, ShareConsumer
from kohort.cli.main import main
from kohort.client.config import SHARE_CONSUMER
from kohort.client.core.missing_settings import NOT_OF_SHARE_GROUPS

PAGE = Path(__file__).parents[2] / "docs" / "share-groups.md"
TEXT = PAGE.read_text("utf-8")
ADDRESS = "127.0.0.1:9092"


def examples() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)


class Enough(Exception):
    """An example that goes on for ever has seen all there is."""


class Mails:
    """`send`, `done` and `finished` for the examples: two mails are sent, then it is enough."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def send(self, value: bytes) -> None:
        if len(self.sent) == 2:
            raise Enough
        self.sent.append(value)

    def finished(self, record: Any) -> bool:
        self.sent.append(record.value)
        return self.sent.count(record.value) == 2

    def done(self) -> bool:
        return len(self.sent) >= 4


@pytest.fixture
def mails(admin: Admin, bootstrap_servers: str, new_topic: Callable[..., str], group: str) -> str:
    """A topic of three mails."""
    topic = new_topic()
    admin.alter_group_configs(
        {group: {"share.auto.offset.reset": "earliest", "share.assignment.interval.ms": 0}}
    )
    with Producer(bootstrap_servers=bootstrap_servers, linger_ms=0) as producer:
        for value in (b"a", b"b", b"c"):
            producer.send(topic, value).result(30)
    return topic


@pytest.mark.timeout(120)
@pytest.mark.parametrize("number", range(len(examples())))
def test_every_example_of_the_docs_works(
    number: int, admin: Admin, bootstrap_servers: str, mails: str, group: str
) -> None:
    example = examples()[number]
    assert ADDRESS in example
    source = example.replace(ADDRESS, bootstrap_servers)
    source = source.replace('"mailers"', repr(group)).replace('["mails"]', repr([mails]))
    desk = Mails()
    names: dict[str, Any] = {"send": desk.send, "done": desk.done, "finished": desk.finished}
    code = compile(source, str(PAGE), "exec")
    if "alter_group_configs" in example:
        exec(code, names)
        assert admin.group_configs(group)[group]["share.auto.offset.reset"].value == "earliest"
    elif "finished" in example:
        exec(code, names)
        assert sorted(set(desk.sent)) == [b"a", b"b", b"c"]
    else:
        with pytest.raises(Enough):
            exec(code, names)
        assert len(desk.sent) == 2


def test_the_commands_of_the_page_work(
    bootstrap_servers: str, mails: str, group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = re.search(r"^```console\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
    assert commands is not None
    said: list[str] = []
    for line in commands[1].splitlines():
        words = line.removeprefix("$ kohort ").replace("mailers", group).replace("mails", mails).split()
        words = ["3" if word == "10" else word for word in words]
        assert main([*words, "--bootstrap", bootstrap_servers]) == 0, capsys.readouterr().err
        said.append(capsys.readouterr().out)
    assert said[0].split() == ["a", "b", "c"]
    assert "START-OFFSET" in said[1]
    assert said[2].endswith("; done\n")
    assert "deleted" in said[3]


def test_the_page_names_the_settings_that_there_are() -> None:
    named = re.findall(r"^\| `([a-z.]+)` \|", TEXT, re.MULTILINE)
    assert named
    assert {name for name in named if name in SHARE_CONSUMER.settings} == set(named)
    for name in re.findall(r"`((?:[a-z]+\.)+[a-z.]+)`", TEXT.partition("refuses")[2].partition("\n\n")[0]):
        assert name in NOT_OF_SHARE_GROUPS, name
    for call in re.findall(r"`([a-z_]+)\(", TEXT):
        assert hasattr(ShareConsumer, call), call
