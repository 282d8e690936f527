"""Settings by Kafka's names, in a dict or as keywords; an unknown or contradictory one names the right one."""

from __future__ import annotations

from typing import Any

import pytest

from kohort import Admin, AsyncConsumer, AsyncProducer, Consumer, KohortError, Producer, SettingError
from kohort.client.config import (
    ADMIN,
    CONSUMER,
    PRODUCER,
    SECURITY_OBJECTS,
    ConsumerConfig,
    ProducerConfig,
    read_config,
)
from kohort.client.core.offset_reset import EARLIEST, LATEST, NO_RESET
from kohort.settings import Table

SERVERS = {"bootstrap.servers": "a:9092"}


def consumer(**settings: object) -> ConsumerConfig:
    return read_config(CONSUMER, SERVERS, settings)[0]


def producer(**settings: object) -> ProducerConfig:
    return read_config(PRODUCER, SERVERS, settings)[0]


# --- how they are given -----------------------------------------------------------------------------------------


def test_a_dict_and_keywords_may_be_mixed() -> None:
    config, _ = read_config(
        CONSUMER, {"bootstrap.servers": "a:1,b:2", "group.id": "shop"}, {"max_poll_records": 7}
    )
    assert (config.bootstrap_servers, config.group_id, config.max_poll_records) == (("a:1", "b:2"), "shop", 7)


@pytest.mark.parametrize("value", [False, "false", "FALSE"])
def test_values_may_be_written_as_kafka_or_as_python_does(value: object) -> None:
    assert consumer(enable_auto_commit=value).enable_auto_commit is False
    assert consumer(fetch_max_bytes="500").fetch_max_bytes == consumer(fetch_max_bytes=500).fetch_max_bytes
    assert read_config(CONSUMER, {"bootstrap.servers": ["a:1", "b:2"]}, {})[0].bootstrap_servers == (
        "a:1",
        "b:2",
    )


def test_none_means_not_given() -> None:
    assert consumer(group_id=None, session_timeout_ms=None).session_timeout_ms == 45_000


def test_given_twice_is_an_error() -> None:
    with pytest.raises(SettingError, match=r"group.id is given twice, in the dict and as group_id="):
        read_config(CONSUMER, SERVERS | {"group.id": "a"}, {"group_id": "b"})


def test_objects_are_handed_back_apart() -> None:
    def upper(topic: str, data: bytes) -> str:
        return data.decode().upper()

    config, objects = read_config(
        CONSUMER,
        SERVERS,
        {"value_deserializer": upper, "key_deserializer": None},
        ("key.deserializer", "value.deserializer"),
    )
    assert objects == {"value.deserializer": upper}
    assert config.bootstrap_servers == ("a:9092",)


def test_a_password_of_the_wrong_type_is_not_shown() -> None:
    with pytest.raises(
        SettingError, match=r"sasl.password takes a string, a number or a boolean, not bytes"
    ) as error:
        consumer(sasl_password=b"hunter2")
    assert "hunter2" not in str(error.value)


# --- unknown names ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "wrong", "right"),
    [
        (CONSUMER, "group.ids", "group.id"),
        (CONSUMER, "auto.offset.resets", "auto.offset.reset"),
        (CONSUMER, "value.deserialiser", "value.deserializer"),
        (PRODUCER, "linger.msec", "linger.ms"),
        (ADMIN, "bootstrap.server", "bootstrap.servers"),
    ],
)
def test_an_unknown_name_is_an_error_that_names_the_right_one(
    table: Table[Any], wrong: str, right: str
) -> None:
    with pytest.raises(SettingError, match=f"unknown setting {wrong}; did you mean {right}?"):
        read_config(table, SERVERS | {wrong: "1"}, {}, ("value.deserializer",))


def test_a_consumer_has_no_settings_of_a_producer() -> None:
    with pytest.raises(SettingError, match=r"unknown setting linger.ms: it is a setting of the producer"):
        consumer(linger_ms=5)


# --- what is not a dict -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [Consumer, Producer, Admin])
@pytest.mark.parametrize(
    "wrong", ["orders", b"orders", ["bootstrap.servers"], 5, [("bootstrap.servers", "a:1")]]
)
def test_settings_that_are_no_dict_get_words(cls: Any, wrong: object) -> None:
    with pytest.raises(SettingError, match=f"are a dict, as in .*; not {type(wrong).__name__}") as error:
        cls(wrong, bootstrap_servers="127.0.0.1:9")
    assert isinstance(error.value, KohortError)
    assert ("subscribe()" in str(error.value)) == (cls is Consumer and wrong == "orders")


@pytest.mark.parametrize("cls", [AsyncConsumer, AsyncProducer])
async def test_settings_that_are_no_dict_get_words_from_asyncio_too(cls: Any) -> None:
    with pytest.raises(SettingError, match="are a dict"):
        cls("orders", bootstrap_servers="127.0.0.1:9")


def test_a_name_that_is_no_string_gets_words() -> None:
    with pytest.raises(SettingError, match="a setting has a string as its name, not 5"):
        read_config(CONSUMER, {5: "orders"}, {})  # type: ignore[dict-item]


def test_an_object_may_have_an_underscore_in_its_name() -> None:
    _, objects = read_config(CONSUMER, SERVERS, {"oauth_cb": print}, SECURITY_OBJECTS)
    assert objects == {"oauth_cb": print}


# --- wrong and contradictory values ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"max_poll_records": 0}, "max.poll.records: Value must be at least 1"),
        ({"max_poll_records": "many"}, "Not a number of type INT"),
        ({"isolation_level": "serializable"}, "read_uncommitted, read_committed"),
        ({"group_protocol": "streams"}, "one of: classic, consumer"),
        ({"auto_offset_reset": "smallest"}, "must be earliest, latest, none or by_duration:PT1H"),
        ({"group_id": " "}, "group.id must not be empty"),
        ({"group_instance_id": "kiosk-1"}, "group.instance.id without group.id"),
        ({"session_timeout_ms": 3000, "heartbeat_interval_ms": 3000}, "a third of it is usual"),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"},
            "needs sasl.username and sasl.password",
        ),
    ],
)
def test_what_a_consumer_cannot_do_says_what_is_allowed(settings: dict[str, object], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        consumer(**settings)


@pytest.mark.parametrize(
    ("name", "value", "who_decides"),
    [
        ("partition_assignment_strategy", "range", "group.remote.assignor chooses how"),
        ("heartbeat_interval_ms", 3000, "group.consumer.heartbeat.interval.ms"),
        ("session_timeout_ms", 45000, "group.consumer.session.timeout.ms"),
    ],
)
def test_what_the_broker_decides_cannot_be_set_with_the_consumer_protocol(
    name: str, value: object, who_decides: str
) -> None:
    settings = {"group_protocol": "CONSUMER", "group_id": "g", name: value}
    with pytest.raises(SettingError, match=f"cannot be set when group.protocol=consumer: .*{who_decides}"):
        read_config(CONSUMER, SERVERS, settings, ("partition.assignment.strategy",))


def test_a_remote_assignor_needs_the_consumer_protocol() -> None:
    with pytest.raises(SettingError, match=r"group.remote.assignor belongs to group.protocol=consumer"):
        consumer(group_remote_assignor="range")
    assert consumer(group_protocol="consumer", group_remote_assignor="range").group_remote_assignor == "range"


@pytest.mark.parametrize("table", [CONSUMER, PRODUCER, ADMIN])
def test_somebody_must_be_asked_first(table: Table[Any]) -> None:
    with pytest.raises(SettingError, match=r"bootstrap.servers is missing: give the host:port"):
        read_config(table, {}, {})


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"acks": "1", "enable_idempotence": True},
            "enable.idempotence needs acks=all; set enable.idempotence=false",
        ),
        ({"max_in_flight_requests_per_connection": 6}, "at most 5"),
        ({"retries": 0, "enable_idempotence": "true"}, "retries greater than 0"),
        ({"delivery_timeout_ms": 1000}, "must be at least linger.ms"),
        ({"compression_type": "zip"}, "gzip, snappy, lz4, zstd"),
    ],
)
def test_what_a_producer_cannot_do_says_what_is_allowed(settings: dict[str, object], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        producer(**settings)


def test_fewer_acks_are_fine_without_idempotence() -> None:
    assert producer(acks=1, enable_idempotence=False, retries=0).acks == "1"


# --- auto.offset.reset ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "reset"), [("earliest", EARLIEST), ("latest", LATEST), ("none", NO_RESET)])
def test_the_reset_policies(text: str, reset: object) -> None:
    assert consumer(auto_offset_reset=text).reset() == reset


@pytest.mark.parametrize(
    ("text", "before_ms"),
    [
        ("PT1H", 3_600_000),
        ("P1D", 86_400_000),
        ("P1DT2H3M4.5S", 93_784_500),
        ("PT0S", 0),
    ],
)
def test_by_duration_takes_iso_8601(text: str, before_ms: int) -> None:
    assert consumer(auto_offset_reset=f"by_duration:{text}").reset().before_ms == before_ms


@pytest.mark.parametrize("text", ["", "P", "PT", "1h", "-PT1H", "PT1", "P1Y"])
def test_a_duration_that_is_none_is_refused_at_construction(text: str) -> None:
    with pytest.raises(SettingError, match="write the duration as ISO-8601, as in by_duration:PT1H"):
        consumer(auto_offset_reset=f"by_duration:{text}")


# --- Kafka's defaults -------------------------------------------------------------------------------------------------


def test_defaults_are_kafkas() -> None:
    config = consumer()
    assert (config.auto_offset_reset, config.enable_auto_commit, config.auto_commit_interval_ms) == (
        "latest",
        True,
        5_000,
    )
    assert (config.session_timeout_ms, config.heartbeat_interval_ms, config.max_poll_interval_ms) == (
        45_000,
        3_000,
        300_000,
    )
    assert (config.max_poll_records, config.fetch_min_bytes, config.fetch_max_wait_ms) == (500, 1, 500)
    assert (config.fetch_max_bytes, config.max_partition_fetch_bytes) == (50 << 20, 1 << 20)
    made = producer()
    assert (made.acks, made.enable_idempotence, made.batch_size) == ("all", True, 16_384)
    assert (made.delivery_timeout_ms, made.max_block_ms, made.buffer_memory) == (120_000, 60_000, 32 << 20)
