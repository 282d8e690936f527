"""Subject name strategies, by the names that Confluent's clients have for them."""

from __future__ import annotations

import pytest

from kohort import SettingError
from kohort.serde.subjects import subject_name_strategy


@pytest.mark.parametrize(
    ("name", "subject"),
    [
        ("TopicNameStrategy", "orders-value"),
        ("RecordNameStrategy", "shop.Order"),
        ("TopicRecordNameStrategy", "orders-shop.Order"),
        ("io.confluent.kafka.serializers.subject.TopicRecordNameStrategy", "orders-shop.Order"),
        ("TOPIC", "orders-value"),
        ("RECORD", "shop.Order"),
        ("TOPIC_RECORD", "orders-shop.Order"),
    ],
)
def test_a_strategy_by_name(name: str, subject: str) -> None:
    assert subject_name_strategy(name)("orders", False, "shop.Order") == subject


def test_keys_have_a_subject_of_their_own() -> None:
    assert subject_name_strategy("TopicNameStrategy")("orders", True, None) == "orders-key"


def test_a_function_may_be_given() -> None:
    def mine(topic: str, is_key: bool, record_name: str | None) -> str:
        return f"mine.{topic}"

    assert subject_name_strategy(mine)("orders", False, None) == "mine.orders"


def test_an_unknown_strategy_is_refused() -> None:
    with pytest.raises(SettingError, match="did you mean TopicNameStrategy"):
        subject_name_strategy("TopicStrategy")


@pytest.mark.parametrize("name", ["RecordNameStrategy", "TopicRecordNameStrategy"])
def test_a_type_without_a_name_cannot_give_one(name: str) -> None:
    with pytest.raises(SettingError, match="give the type a name"):
        subject_name_strategy(name)("orders", False, None)
