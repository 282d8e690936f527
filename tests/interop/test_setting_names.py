"""Every setting that Apache Kafka itself has is known here: it is done, refused by name, or warned about."""

from __future__ import annotations

import pytest

from kohort.broker import kafka_settings
from kohort.broker.config import BROKER_SETTINGS
from kohort.client import consumer
from kohort.client.config import ADMIN, CONSUMER, PRODUCER, SECURITY_OBJECTS
from kohort.client.core.missing_settings import NO_EFFECT, REFUSED
from kohort.client.produce import outgoing
from tests.interop.conftest import Run

pytestmark = pytest.mark.interop

OF_CLIENTS = {
    "admin": (ADMIN, SECURITY_OBJECTS),
    "consumer": (CONSUMER, consumer.OBJECTS),
    "producer": (PRODUCER, outgoing.OBJECTS),
}


@pytest.fixture(scope="module")
def names(java: Run) -> list[list[str]]:
    return [line.split() for line in java("SettingNames").splitlines()]


@pytest.mark.parametrize("client", OF_CLIENTS)
def test_every_setting_of_a_client_is_known(names: list[list[str]], client: str) -> None:
    table, objects = OF_CLIENTS[client]
    known = {*table.settings, *objects, *REFUSED, *NO_EFFECT}
    assert [name for who, name in names if who == client and name not in known] == []


def test_every_setting_of_the_broker_is_known(names: list[list[str]]) -> None:
    def is_known(name: str) -> bool:
        return (
            name in BROKER_SETTINGS.settings
            or kafka_settings.is_of_security(name)
            or kafka_settings.is_inert(name)
            or kafka_settings.is_refused(name)
        )

    assert [name for who, name in names if who == "broker" and not is_known(name)] == []
