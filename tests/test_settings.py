from __future__ import annotations

from dataclasses import dataclass

import pytest

from kohort.settings import (
    Kind,
    Setting,
    SettingError,
    Table,
    as_text,
    at_least,
    between,
    list_of,
    one_of,
    setting,
)


@dataclass(frozen=True, slots=True)
class Example:
    num_partitions: int = setting("num.partitions", Kind.INT, 1, at_least(1), "Of a new topic.")
    log_retention_ms: int | None = setting("log.retention.ms", Kind.LONG, None, None, "Time.")
    secret_knob: int = setting("secret.knob", Kind.INT, 0, None, "Hidden.", internal=True)


TABLE: Table[Example] = Table(Example, "broker")


def row(kind: Kind, check: object = None) -> Setting:
    return Setting("x", kind, None, check, "")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Kind.BOOLEAN, " TRUE ", True),
        (Kind.BOOLEAN, "false", False),
        (Kind.INT, "-2147483648", -(2**31)),
        (Kind.INT, " +7 ", 7),
        (Kind.LONG, "9223372036854775807", 2**63 - 1),
        (Kind.DOUBLE, "0.25", 0.25),
        (Kind.STRING, " a b ", "a b"),
        (Kind.LIST, "a , b,c", ("a", "b", "c")),
        (Kind.LIST, " ", ()),
    ],
)
def test_values_are_read_as_kafka_writes_them(kind: Kind, text: str, value: object) -> None:
    assert row(kind).parse(text) == value


@pytest.mark.parametrize(
    ("kind", "text", "why"),
    [
        (Kind.BOOLEAN, "yes", "Expected value to be either true or false"),
        (Kind.INT, "2147483648", "Not a number of type INT"),
        (Kind.INT, "1_000", "Not a number of type INT"),
        (Kind.INT, "", "Not a number of type INT"),
        (Kind.INT, "9" * 5000, "Not a number of type INT"),
        (Kind.LONG, "9223372036854775808", "Not a number of type LONG"),
        (Kind.DOUBLE, "nan", "Not a number of type DOUBLE"),
        (Kind.DOUBLE, "1_0.0", "Not a number of type DOUBLE"),
    ],
)
def test_what_is_not_a_value_is_refused_with_the_reason(kind: Kind, text: str, why: str) -> None:
    with pytest.raises(SettingError) as error:
        row(kind).parse(text)
    assert str(error.value) == f"Invalid value {text} for configuration x: {why}"


def test_limits_say_what_is_allowed() -> None:
    assert at_least(1)(0) == "Value must be at least 1"
    assert between(0, 1)(2) == "Value must be no more than 1"
    assert between(0, 1)(-1) == "Value must be at least 0"
    assert between(0, 1)(0.5) is None
    assert between(1, 9, or_equal=-1)(0) == "Value must be between 1 and 9 or equal to -1"
    assert between(1, 9, or_equal=-1)(-1) is None
    assert one_of("a", "b")("c") == "String must be one of: a, b"
    assert list_of("a", "b")(("a", "c")) == "String must be one of: a, b"
    assert list_of()(("a", "a")) == "values must not be duplicated"
    assert list_of()(("a", "")) == "values must not be empty"
    assert list_of("a", "b")(("b", "a")) is None


def test_a_table_reads_names_into_fields_and_keeps_the_rest() -> None:
    first = TABLE.parse({"num.partitions": "3"})
    assert first == Example(num_partitions=3)
    assert TABLE.parse({"log.retention.ms": "5"}, onto=first) == Example(num_partitions=3, log_retention_ms=5)


def test_an_unknown_name_is_answered_with_the_nearest_right_one() -> None:
    with pytest.raises(
        SettingError, match=r"^Unknown broker config name: num.partition; did you mean num.parti"
    ):
        TABLE.parse({"num.partition": "3"})
    with pytest.raises(SettingError, match=r"^Unknown broker config name: zzz$"):
        TABLE.parse({"zzz": "3"})


def test_an_internal_setting_works_but_is_not_listed() -> None:
    assert TABLE.parse({"secret.knob": "4"}).secret_knob == 4
    assert [setting.name for setting in TABLE] == ["log.retention.ms", "num.partitions"]


def test_values_are_written_as_kafka_writes_them() -> None:
    assert [as_text(value) for value in (True, False, 5, 0.5, "x", ("a", "b"), (), None)] == [
        "true", "false", "5", "0.5", "x", "a,b", "", None,
    ]  # fmt: skip


def test_a_wrong_setting_is_one_of_kohorts_errors_and_still_a_value_error() -> None:
    import kohort

    assert kohort.SettingError is SettingError
    assert "SettingError" in dir(kohort)
    assert issubclass(SettingError, kohort.KohortError)
    assert issubclass(SettingError, ValueError)
