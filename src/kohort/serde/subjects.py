"""Says under which subject of a registry a schema is registered: the subject name strategies, by Confluent's names."""

from __future__ import annotations

from collections.abc import Callable

from kohort.settings import SettingError, nearest

SubjectNameStrategy = Callable[[str, bool, "str | None"], str]
"""A function of the topic, whether it is the key, and the full name of the record type (None: it has none)."""

DEFAULT_STRATEGY = "TopicNameStrategy"


def topic_name_strategy(topic: str, is_key: bool, record_name: str | None) -> str:
    """Returns `orders-key` or `orders-value`: one type of record to a topic."""
    return f"{topic}-{'key' if is_key else 'value'}"


def record_name_strategy(topic: str, is_key: bool, record_name: str | None) -> str:
    """Returns the record type's full name: the same schema in all topics."""
    return _named(record_name, "RecordNameStrategy")


def topic_record_name_strategy(topic: str, is_key: bool, record_name: str | None) -> str:
    """Returns topic and record type, `orders-com.example.Order`: several types of records in one topic."""
    return f"{topic}-{_named(record_name, 'TopicRecordNameStrategy')}"


STRATEGIES: dict[str, SubjectNameStrategy] = {
    "TopicNameStrategy": topic_name_strategy,
    "RecordNameStrategy": record_name_strategy,
    "TopicRecordNameStrategy": topic_record_name_strategy,
}
_OF_PYTHON = {
    "TOPIC": "TopicNameStrategy",
    "RECORD": "RecordNameStrategy",
    "TOPIC_RECORD": "TopicRecordNameStrategy",
}


def subject_name_strategy(chosen: str | SubjectNameStrategy) -> SubjectNameStrategy:
    """Returns a strategy by its name, or a function as it is.

    The names are Java's, short or with their package (`io.confluent.kafka.serializers.subject.RecordNameStrategy`), and
    those of confluent-kafka's `subject.name.strategy.type` (`RECORD`).
    """
    if callable(chosen):
        return chosen
    short = chosen.rpartition(".")[2]
    found = STRATEGIES.get(_OF_PYTHON.get(short, short))
    if found is None:
        raise SettingError(
            f"{chosen} is no subject name strategy: take one of {', '.join(STRATEGIES)}, or a function (topic, is_key, "
            f"record_name) -> subject{nearest(short, STRATEGIES)}"
        )
    return found


def _named(record_name: str | None, strategy: str) -> str:
    if record_name is None:
        raise SettingError(
            f"{strategy} needs a schema whose type has a name (an Avro record, a JSON Schema with a title): take "
            f"TopicNameStrategy, or give the type a name"
        )
    return record_name
