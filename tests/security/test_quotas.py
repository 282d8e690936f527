"""Quotas in virtual time: which one applies, and the same throttle times as a plain copy of Kafka's classes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.security import quotas
from kohort.security.quota_changes import changed_values, entity_of, filter_of
from kohort.security.quotas import (
    CLIENT_ID,
    FORGOTTEN_AFTER_MS,
    IP,
    USER,
    Limit,
    MutationQuota,
    QuotaBook,
    QuotaKind,
    QuotaWindow,
    RateSensor,
    TokenBucket,
)
from kohort.wire.errors import ErrorCode, KafkaError

NOW_MS = 1_700_000_000_000
WINDOW = QuotaWindow()


# --- a plain copy of Kafka's classes ----------------------------------------------------------------------


@dataclass
class KafkasSample:
    start_ms: int
    last_event_ms: int
    value: float = 0.0

    def reset(self, now_ms: int) -> None:
        self.start_ms = self.last_event_ms = now_ms
        self.value = 0.0


@dataclass
class KafkasRate:
    """Rate, SampledStat and QuotaUtils.throttleTime, line by line."""

    samples_kept: int
    window_ms: int
    samples: list[KafkasSample] = field(default_factory=list)
    current: int = 0

    def record(self, value: float, now_ms: int) -> None:
        sample = self.current_sample(now_ms)
        if now_ms - sample.start_ms >= self.window_ms:
            self.current = (self.current + 1) % (self.samples_kept + 1)
            if self.current >= len(self.samples):
                sample = KafkasSample(now_ms, now_ms)
                self.samples.append(sample)
            else:
                sample = self.current_sample(now_ms)
                sample.reset(now_ms)
        sample.value += value
        sample.last_event_ms = now_ms

    def current_sample(self, now_ms: int) -> KafkasSample:
        if not self.samples:
            self.samples.append(KafkasSample(now_ms, now_ms))
        return self.samples[self.current]

    def purge(self, now_ms: int) -> None:
        for sample in self.samples:
            if now_ms - sample.last_event_ms >= self.samples_kept * self.window_ms:
                sample.reset(now_ms)

    def size_ms(self, now_ms: int) -> int:
        self.purge(now_ms)
        if not self.samples:
            self.samples.append(KafkasSample(now_ms, now_ms))
        elapsed = now_ms - min(sample.start_ms for sample in self.samples)
        full = elapsed // self.window_ms
        if full < self.samples_kept - 1:
            elapsed += (self.samples_kept - 1 - full) * self.window_ms
        return max(elapsed, 1)

    def measure(self, now_ms: int) -> float:
        self.purge(now_ms)
        total = 0.0
        for sample in self.samples:
            total += sample.value
        return total / (self.size_ms(now_ms) / 1000.0)

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        value = self.measure(now_ms)
        if value <= bound:
            return 0
        return math.floor((value - bound) / bound * self.size_ms(now_ms) + 0.5)


@given(
    samples=st.integers(1, 12),
    window_s=st.integers(1, 3),
    bound=st.floats(0.5, 1e6),
    steps=st.lists(st.tuples(st.integers(0, 15_000), st.integers(-50, 10_000)), min_size=1, max_size=60),
)
def test_a_rate_throttles_exactly_as_kafkas(samples, window_s, bound, steps):
    window = QuotaWindow(samples, window_s * 1000)
    limit, kafkas, now_ms = (
        Limit(RateSensor(window, NOW_MS), bound),
        KafkasRate(samples, window_s * 1000),
        NOW_MS,
    )
    for pause_ms, value in steps:
        now_ms += pause_ms
        kafkas.record(value, now_ms)
        if value < 0:
            limit.count(value, now_ms)
        else:
            assert limit.charge(value, now_ms) == min(kafkas.throttle_ms(bound, now_ms), 2**31 - 1)


@given(
    samples=st.integers(1, 12),
    rate=st.floats(0.1, 100),
    strict=st.booleans(),
    steps=st.lists(st.tuples(st.integers(0, 30_000), st.integers(1, 500)), min_size=1, max_size=40),
)
def test_a_bucket_refuses_and_throttles_exactly_as_kafkas(samples, rate, strict, steps):
    bucket, now_ms = TokenBucket(QuotaWindow(samples), NOW_MS), NOW_MS
    burst = samples * rate
    tokens = burst
    for pause_ms, partitions in steps:
        now_ms += pause_ms
        tokens = min(burst, tokens + rate * (pause_ms / 1000))
        quota = MutationQuota(bucket, rate, strict=strict)
        expected = not (strict and tokens < 0)
        assert quota.take(partitions, now_ms) is expected
        wait_ms = math.floor(-tokens / rate * 1000 + 0.5) if tokens < 0 else 0
        if expected:
            tokens -= partitions
            wait_ms = math.floor(-tokens / rate * 1000 + 0.5) if tokens < 0 and not strict else 0
        assert quota.throttle_ms(now_ms) == pytest.approx(wait_ms, abs=1)
        assert quota.throttle_ms(now_ms + 100) == pytest.approx(max(wait_ms - 100, 0), abs=1)


# --- the examples of the spec -----------------------------------------------------------------------------


def book_of(
    *quotas_set: tuple[dict[str, str | None], dict[str, float]], window: QuotaWindow = WINDOW
) -> QuotaBook:
    book = QuotaBook(window, window)
    for entity, values in quotas_set:
        book.put(tuple(sorted(entity.items())), values)
    return book


def test_a_fresh_client_with_1000_bytes_a_second_waits_10_s_after_20_000_bytes():
    book = book_of(({USER: "alice"}, {QuotaKind.PRODUCE: 1000}))
    produce = book.limits("alice", "app", NOW_MS).produce
    assert produce is not None
    assert produce.charge(20_000, NOW_MS) == 10_000


def test_up_to_ten_seconds_of_the_quota_at_once_wait_for_nothing():
    produce = book_of(({USER: "alice"}, {QuotaKind.PRODUCE: 1000})).limits("alice", "", NOW_MS).produce
    assert produce is not None
    assert produce.charge(10_000, NOW_MS) == 0
    assert produce.charge(1, NOW_MS) == 1


def test_request_percentage_is_capped_at_one_sample():
    request = book_of(({USER: None}, {QuotaKind.REQUEST: 1})).limits("bob", "", NOW_MS).request
    assert request is not None
    assert request.charge(1_000_000, NOW_MS) == 1000


def test_what_was_taken_back_is_not_counted():
    fetch = book_of(({USER: None}, {QuotaKind.FETCH: 1000})).limits("bob", "", NOW_MS).fetch
    assert fetch is not None
    assert fetch.charge(20_000, NOW_MS) == 10_000
    fetch.count(-20_000, NOW_MS)
    assert fetch.charge(10_000, NOW_MS) == 0


def test_a_fetch_may_have_ten_seconds_of_the_quota():
    book = book_of(({CLIENT_ID: "app"}, {QuotaKind.FETCH: 1000}), ({USER: "rich"}, {QuotaKind.FETCH: 2**60}))
    assert book.limits("bob", "app", NOW_MS).most_fetch_bytes == 10_000
    assert book.limits("bob", "other", NOW_MS).most_fetch_bytes == 2**31 - 1
    assert book.limits("rich", "app", NOW_MS).most_fetch_bytes == 2**31 - 1


def test_a_bucket_has_eleven_seconds_at_first_and_may_go_below_zero():
    book = book_of(({USER: "alice"}, {QuotaKind.MUTATION: 1}))
    limits = book.limits("alice", "", NOW_MS)
    assert limits.bucket is not None
    quota = MutationQuota(limits.bucket, limits.mutation_rate, strict=True)
    assert quota.take(11, NOW_MS)
    assert quota.take(5, NOW_MS)
    assert not quota.take(1, NOW_MS)
    assert quota.throttle_ms(NOW_MS) == 5000
    assert quota.take(1, NOW_MS + 5000)


# --- whom a quota applies to ------------------------------------------------------------------------------

ORDER = [
    ({USER: "u", CLIENT_ID: "c"}, ("u", "c")),
    ({USER: "u", CLIENT_ID: None}, ("u", "c")),
    ({USER: "u"}, ("u", "")),
    ({USER: None, CLIENT_ID: "c"}, ("u", "c")),
    ({USER: None, CLIENT_ID: None}, ("u", "c")),
    ({USER: None}, ("u", "")),
    ({CLIENT_ID: "c"}, ("", "c")),
    ({CLIENT_ID: None}, ("", "c")),
]


@given(st.sets(st.integers(0, len(ORDER) - 1)))
def test_the_first_entity_in_kafkas_order_applies(present):
    book = book_of(*[(ORDER[place][0], {QuotaKind.PRODUCE: 100.0 + place}) for place in present])
    produce = book.limits("u", "c", NOW_MS).produce
    assert (None if produce is None else produce.bound) == (100.0 + min(present) if present else None)


@pytest.mark.parametrize(("entity", "counted"), ORDER)
def test_what_is_used_is_shared_by_the_user_the_client_id_or_the_pair(entity, counted):
    book = book_of((entity, {QuotaKind.PRODUCE: 1000}))
    first = book.limits("u", "c", NOW_MS).produce
    assert first is not None
    first.charge(10_000, NOW_MS)
    for user, client_id in (("u", "c"), ("u", "d"), ("v", "c")):
        other = book.limits(user, client_id, NOW_MS).produce
        shares = counted in ((user, client_id), (user, ""), ("", client_id))
        waits = 0 if other is None else other.charge(1, NOW_MS)
        assert (waits > 0) is shares
        if other is not None:
            other.count(-1, NOW_MS)


def test_each_key_is_looked_for_by_itself():
    book = book_of(
        ({USER: "u", CLIENT_ID: "c"}, {QuotaKind.PRODUCE: 1}),
        ({USER: "u"}, {QuotaKind.PRODUCE: 2, QuotaKind.FETCH: 3}),
        ({CLIENT_ID: None}, {QuotaKind.REQUEST: 4}),
    )
    limits = book.limits("u", "c", NOW_MS)
    assert [limit and limit.bound for limit in (limits.produce, limits.fetch, limits.request)] == [1, 3, 4]


def test_an_empty_client_id_has_only_the_quotas_of_its_user():
    book = book_of(
        ({USER: "u", CLIENT_ID: None}, {QuotaKind.PRODUCE: 1}),
        ({CLIENT_ID: None}, {QuotaKind.PRODUCE: 2}),
        ({USER: None}, {QuotaKind.PRODUCE: 3}),
    )
    produce = book.limits("u", "", NOW_MS).produce
    assert produce is not None
    assert produce.bound == 3


def test_a_change_counts_at_once_and_what_was_used_stays():
    book = book_of(({USER: "u"}, {QuotaKind.PRODUCE: 1000}))
    before = book.limits("u", "c", NOW_MS).produce
    assert before is not None
    before.charge(10_000, NOW_MS)
    book.put(((USER, "u"),), {QuotaKind.PRODUCE: 500})
    after = book.limits("u", "c", NOW_MS).produce
    assert after is not None
    assert after.charge(0, NOW_MS) == 10_000
    book.put(((USER, "u"),), {})
    assert book.limits("u", "c", NOW_MS).produce is None
    assert not book


def test_what_was_unused_for_an_hour_is_forgotten():
    book = book_of(
        ({USER: None}, {QuotaKind.PRODUCE: 1, QuotaKind.MUTATION: 0.001}), window=QuotaWindow(11, 3_600_000)
    )
    first = book.limits("u", "", NOW_MS)
    assert first.produce is not None
    assert first.bucket is not None
    first.produce.charge(10**9, NOW_MS)
    first.bucket.take(10**6, 0.001, NOW_MS)
    assert book.limits("u", "", NOW_MS + FORGOTTEN_AFTER_MS - 1).bucket is first.bucket
    later_ms = NOW_MS + FORGOTTEN_AFTER_MS
    again = book.limits("u", "", later_ms + 60_000)
    assert again.produce is not None
    assert again.bucket is not None
    assert again.produce.charge(1, later_ms) == 0
    assert again.bucket.throttle_ms(0.001, later_ms) == 0
    assert book.sensor_count == 2
    book.forget_unused(later_ms + FORGOTTEN_AFTER_MS + 60_000)
    assert book.sensor_count == 0


def test_there_is_a_cap_on_how_many_are_counted(monkeypatch):
    monkeypatch.setattr(quotas, "MOST_SENSORS", 10)
    book = book_of(({CLIENT_ID: None}, {QuotaKind.PRODUCE: 1000}))
    for number in range(100):
        produce = book.limits("u", f"client-{number}", NOW_MS).produce
        assert produce is not None
        produce.charge(20_000, NOW_MS)
    assert book.sensor_count == 10
    last = book.limits("u", "client-99", NOW_MS).produce
    assert last is not None
    assert last.charge(0, NOW_MS) == 10_000


def test_connections_of_an_address_are_held_when_they_come_too_fast():
    book = book_of(({IP: None}, {QuotaKind.CONNECTION: 1}), ({IP: "127.0.0.1"}, {QuotaKind.CONNECTION: 2}))
    held = [book.connect("127.0.0.1", NOW_MS) for _ in range(25)]
    assert held == [0] * 20 + [500] * 5, "what is held is not counted"
    assert [book.connect("10.0.0.1", NOW_MS) for _ in range(11)] == [0] * 10 + [1000]
    assert book_of(({IP: "10.0.0.1"}, {QuotaKind.CONNECTION: 1})).connect("10.0.0.2", NOW_MS) == 0


# --- changes and filters ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pairs", "text"),
    [
        ([], "empty client quota entity"),
        ([("group", "g")], "Unhandled client quota entity type: group"),
        ([(USER, "")], "Empty user not supported"),
        ([(IP, "127.0.0.1"), (USER, "u")], "should not be combined"),
        ([(IP, "nobody knows")], "nobody knows is not a valid IP or resolvable host."),
        ([(USER, "u"), (USER, None)], "duplicate entity entry user"),
    ],
)
def test_a_wrong_entity_is_refused(pairs, text):
    with pytest.raises(KafkaError, match=text) as raised:
        entity_of(pairs, lambda host: host == "127.0.0.1")
    assert raised.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("entity", "ops", "text"),
    [
        (
            ((USER, "u"),),
            [("connection_creation_rate", 1.0)],
            "Invalid configuration key connection_creation_rate",
        ),
        (((IP, None),), [("producer_byte_rate", 1.0)], "Invalid configuration key producer_byte_rate"),
        (((USER, "u"),), [("burst", 1.0)], "Invalid configuration key burst"),
        (((USER, "u"),), [("producer_byte_rate", 0.0)], "must be greater than 0"),
        (((USER, "u"),), [("request_percentage", -1.0)], "must be greater than 0"),
        (((USER, "u"),), [("request_percentage", math.nan)], "must be greater than 0"),
        (((USER, "u"),), [("consumer_byte_rate", 1.5)], "cannot be a fractional value"),
        (((USER, "u"),), [("consumer_byte_rate", 1e19)], "too large for a LONG"),
        (((IP, None),), [("connection_creation_rate", 1.5)], "cannot be a fractional value"),
        (((IP, None),), [("connection_creation_rate", 2.0**31)], "too large for an INT"),
        (((USER, "u"),), [("producer_byte_rate", 1.0), ("producer_byte_rate", None)], "Duplicate quota key"),
    ],
)
def test_a_wrong_value_is_refused(entity, ops, text):
    with pytest.raises(KafkaError, match=text) as raised:
        changed_values(entity, {}, ops)
    assert raised.value.code is ErrorCode.INVALID_REQUEST


def test_a_change_sets_and_removes():
    entity = entity_of([(USER, None), (CLIENT_ID, "c")], lambda host: False)
    assert entity == ((CLIENT_ID, "c"), (USER, None))
    ops = [("request_percentage", 0.5), ("producer_byte_rate", None), ("consumer_byte_rate", None)]
    assert changed_values(entity, {"producer_byte_rate": 1.0}, ops) == {"request_percentage": 0.5}


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("", 0, "u")], ErrorCode.INVALID_REQUEST),
        ([(USER, 0, "u"), (USER, 2, None)], ErrorCode.INVALID_REQUEST),
        ([(USER, 0, None)], ErrorCode.INVALID_REQUEST),
        ([(USER, 1, "u")], ErrorCode.INVALID_REQUEST),
        ([(USER, 2, "u")], ErrorCode.INVALID_REQUEST),
        ([(USER, 3, None)], ErrorCode.INVALID_REQUEST),
        ([(IP, 2, None), (USER, 2, None)], ErrorCode.INVALID_REQUEST),
        ([("group", 2, None)], ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_a_wrong_filter_is_refused(components, code):
    with pytest.raises(KafkaError) as raised:
        filter_of(components, strict=False)
    assert raised.value.code is code


@pytest.mark.parametrize(
    ("components", "strict", "found"),
    [
        ([], False, "abcd"),
        ([], True, ""),
        ([(USER, 0, "u")], False, "ab"),
        ([(USER, 0, "u")], True, "a"),
        ([(USER, 2, None)], False, "abc"),
        ([(USER, 1, None)], True, "c"),
        ([(USER, 2, None), (CLIENT_ID, 2, None)], True, "b"),
        ([(IP, 2, None)], True, "d"),
    ],
)
def test_a_filter_finds_what_kafkas_would(components, strict, found):
    entities = {
        "a": ((USER, "u"),),
        "b": ((CLIENT_ID, "c"), (USER, "u")),
        "c": ((USER, None),),
        "d": ((IP, "127.0.0.1"),),
    }
    wanted = filter_of(components, strict=strict)
    assert "".join(name for name, entity in entities.items() if wanted.matches(entity)) == found
