"""Topics through the admin calls of real clients: what one library changed, the others see."""

from __future__ import annotations

from typing import Any

import pytest

from tests.clients.client import Refused, Sent
from tests.clients.clients import CLIENTS, each_client
from tests.clients.conftest import Connect


@each_client("create_topic", "delete_topic", "topics")
def test_create_and_delete(client: Any, connect: Connect, name: str) -> None:
    client.create_topic(name, partitions=3)
    for other in CLIENTS:
        assert connect(other).topics()[name] == 3, other.name
    with pytest.raises(Refused) as refused:
        client.create_topic(name)
    assert refused.value.error == "TOPIC_ALREADY_EXISTS"
    client.delete_topic(name)
    for other in CLIENTS:
        assert name not in connect(other).topics(), other.name
    with pytest.raises(Refused) as refused:
        client.delete_topic(name)
    assert refused.value.error == "UNKNOWN_TOPIC_OR_PARTITION"


@each_client("create_topic", "delete_topic")
def test_made_again_under_the_same_name_it_starts_at_0(client: Any, name: str) -> None:
    for life in (b"first", b"second"):
        client.create_topic(name)
        assert client.produce(name, [Sent(life), Sent(life)]) == [0, 1]
        assert [(record.offset, record.value) for record in client.fetch(name, 2)] == [(0, life), (1, life)]
        client.delete_topic(name)


@each_client("create_topic")
@pytest.mark.parametrize("bad", ["no spaces", "a" * 250, ".."])
def test_names_that_are_refused(client: Any, bad: str) -> None:
    with pytest.raises(Refused) as refused:
        client.create_topic(bad)
    assert refused.value.error == "INVALID_TOPIC_EXCEPTION"


@each_client("create_topic", "topic_config")
def test_settings_given_at_creation(client: Any, connect: Connect, name: str) -> None:
    client.create_topic(name, config={"retention.ms": "86400000", "cleanup.policy": "compact"})
    for other in CLIENTS:
        config = connect(other).topic_config(name)
        assert config["retention.ms"] == "86400000", other.name
        assert config["cleanup.policy"] == "compact"
        assert config["segment.bytes"] == "1073741824", "a default is told too"


@each_client("create_topic")
def test_a_wrong_setting_is_refused(client: Any, name: str) -> None:
    for config in ({"retention.mss": "1"}, {"retention.ms": "soon"}):
        with pytest.raises(Refused) as refused:
            client.create_topic(name, config=config)
        assert refused.value.error == "INVALID_CONFIG"
    assert name not in client.topics()


@each_client("set_topic_config")
def test_settings_changed_one_by_one(client: Any, name: str) -> None:
    client.create_topic(name, config={"retention.ms": "86400000"})
    client.set_topic_config(name, "max.message.bytes", "1000")
    config = client.topic_config(name)
    assert (config["max.message.bytes"], config["retention.ms"]) == ("1000", "86400000")
    with pytest.raises(Refused) as refused:
        client.produce(name, [Sent(b"x" * 2000)])
    assert refused.value.error == "MESSAGE_TOO_LARGE", "the new limit holds at once"
    client.set_topic_config(name, "max.message.bytes", "100000")
    assert client.produce(name, [Sent(b"x" * 2000)]) == [0]
    with pytest.raises(Refused) as refused:
        client.set_topic_config(name, "max.message.bytes", "many")
    assert refused.value.error == "INVALID_CONFIG"


@each_client("replace_topic_config")
def test_settings_replaced_all_at_once(client: Any, name: str) -> None:
    client.create_topic(name, config={"retention.ms": "86400000"})
    client.replace_topic_config(name, {"max.message.bytes": "1000"})
    config = client.topic_config(name)
    assert (config["max.message.bytes"], config["retention.ms"]) == ("1000", "604800000")


@each_client("create_partitions")
def test_more_partitions(client: Any, connect: Connect, name: str) -> None:
    client.create_topic(name)
    client.produce(name, [Sent(b"zero")])
    client.create_partitions(name, 4)
    for other in CLIENTS:
        assert connect(other).topics()[name] == 4, other.name
    assert client.produce(name, [Sent(b"three")], partition=3) == [0]
    assert [record.value for record in client.fetch(name, 1, partition=3)] == [b"three"]
    assert [record.value for record in client.fetch(name, 1)] == [b"zero"]
    with pytest.raises(Refused) as refused:
        client.create_partitions(name, 2)
    assert refused.value.error == "INVALID_PARTITIONS"


@each_client("delete_records")
def test_delete_records(client: Any, name: str) -> None:
    client.create_topic(name)
    client.produce(name, [Sent(b"%d" % i) for i in range(10)])
    assert client.delete_records(name, 4) == 4
    assert client.offsets(name, 0)[:2] == (4, 10)
    assert [record.value for record in client.fetch(name, 6, offset=4)] == [
        b"4",
        b"5",
        b"6",
        b"7",
        b"8",
        b"9",
    ]
    with pytest.raises(Refused) as refused:
        client.delete_records(name, 11)
    assert refused.value.error == "OFFSET_OUT_OF_RANGE"
