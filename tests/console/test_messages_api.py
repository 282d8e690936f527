"""Messages in the API: places, directions, search, and what is too large or no text."""

from __future__ import annotations

import base64

import pytest

from kohort.client.producer import Producer
from kohort.testing import Kafka
from tests.console.api import console_of, error_of

LARGE = 50 << 20
MESSAGES = "/api/topic/messages"


@pytest.fixture(scope="module")
def letters():
    with Kafka() as kafka:
        kafka.create_topic("letters", 2)
        kafka.create_topic("large", 1, **{"max.message.bytes": LARGE + 1000})
        kafka.create_topic("empty", 1)
        settings = {"bootstrap.servers": kafka.bootstrap_servers}
        with Producer(
            {
                **settings,
                "max.request.size": 2 * LARGE,
                "buffer.memory": 3 * LARGE,
                "linger.ms": 0,
                "batch.size": 0,
            }
        ) as producer:
            for number in range(100):
                producer.send(
                    "letters", partition=number % 2, key=b"k%d" % number, value=b'{"n": %d}' % number,
                    timestamp_ms=1_000_000 + number, headers=[("h", b"x%d" % number)],
                )  # fmt: skip
            producer.send("large", partition=0, value=b"\x00\xff" * (LARGE // 2))
            producer.send("large", partition=0, value="für alle".encode() * 4_000)
            producer.send("large", partition=0, value=None, key=b"\x80")
        with console_of(kafka.bootstrap_servers) as console:
            yield console


def numbers(answer) -> list[int]:
    assert answer.status_code == 200, answer.text
    return [int(row["key"]["text"][1:]) for row in answer.json()["messages"]]


def test_the_last_messages_come_first_and_the_cursor_goes_back_to_the_beginning(letters):
    limits = {"topic": "letters", "limit": 30}
    answer = letters.get(MESSAGES, params=limits)
    seen = numbers(answer)
    assert seen == list(range(70, 100))
    while answer.json()["previous"] is not None:
        answer = letters.get(MESSAGES, params={**limits, "cursor": answer.json()["previous"]})
        seen = numbers(answer) + seen
    assert seen == list(range(100))
    assert answer.json()["complete"] is True


def test_from_the_beginning_the_cursor_goes_to_the_end(letters):
    limits = {"topic": "letters", "limit": 33}
    answer = letters.get(MESSAGES, params={**limits, "from": "beginning"})
    seen = numbers(answer)
    while answer.json()["next"] is not None:
        answer = letters.get(MESSAGES, params={**limits, "cursor": answer.json()["next"]})
        seen += numbers(answer)
    assert seen == list(range(100))


def test_by_offset_and_by_time(letters):
    at = letters.get("/api/topic/messages?topic=letters&partition=1&offset=10&limit=2")
    assert numbers(at) == [21, 23]
    assert numbers(letters.get("/api/topic/messages?topic=letters&time_ms=1000097")) == [97, 98, 99]
    assert numbers(letters.get("/api/topic/messages?topic=letters&partition=0&offset=99999999")) == []
    one = letters.get("/api/topic/message?topic=letters&partition=1&offset=10").json()["message"]
    assert one["value"]["text"] == '{"n": 21}'
    assert one["headers"] == [
        {"name": "h", "value": {"text": "x21", "encoding": "utf-8", "size": 3, "truncated": False}}
    ]
    assert (one["timestamp_ms"], one["timestamp_type"]) == (1_000_021, "CreateTime")


def test_a_search_looks_into_keys_values_and_headers(letters):
    place = {"topic": "letters", "from": "beginning"}
    assert numbers(letters.get(MESSAGES, params={**place, "search": '"N": 42}'})) == [42]
    assert numbers(letters.get(MESSAGES, params={**place, "search": "K77"})) == [77]
    assert numbers(letters.get(MESSAGES, params={**place, "search": "X13"})) == [13]
    nowhere = letters.get(MESSAGES, params={**place, "search": "nowhere"})
    assert numbers(nowhere) == []
    assert (nowhere.json()["scanned"], nowhere.json()["complete"]) == (100, True)
    assert numbers(letters.get("/api/topic/messages?topic=letters&limit=1&search=k1")) == [19]


def test_a_search_is_bounded_and_says_where_to_go_on(letters, monkeypatch):
    monkeypatch.setattr("kohort.console.messages.SCANNED_RECORDS", 10)
    wanted = {"topic": "letters", "partition": 0, "search": "k98"}
    answer = letters.get(MESSAGES, params={**wanted, "from": "beginning"})
    rounds = 1
    while not numbers(answer):
        assert answer.json()["complete"] is False
        assert answer.json()["scanned"] <= 50
        answer = letters.get(MESSAGES, params={**wanted, "cursor": answer.json()["next"]})
        rounds += 1
        assert rounds < 50
    assert numbers(answer) == [98]


def test_fifty_megabytes_are_cut_in_the_list_and_whole_in_the_download(letters):
    answer = letters.get("/api/topic/messages?topic=large&from=beginning&limit=1")
    value = answer.json()["messages"][0]["value"]
    assert (value["encoding"], value["size"], value["truncated"]) == ("base64", LARGE, True)
    assert base64.b64decode(value["text"]) == b"\x00\xff" * (8 << 10)
    assert len(answer.content) < 100_000
    file = letters.get("/api/topic/message/download?topic=large&partition=0&offset=0")
    assert file.content == b"\x00\xff" * (LARGE // 2)
    assert file.headers["content-disposition"] == 'attachment; filename="large-0-0-value.bin"'
    assert file.headers["content-type"] == "application/octet-stream"
    assert file.headers["x-content-type-options"] == "nosniff"


def test_text_is_cut_between_characters_and_nonsense_is_base64(letters):
    first = letters.get(f"{MESSAGES}?topic=large&from=beginning").json()
    assert (len(first["messages"]), first["complete"]) == (1, False)  # one was as much as a request may read
    text, nothing = letters.get(f"{MESSAGES}?topic=large&cursor={first['next']}").json()["messages"]
    assert (text["value"]["encoding"], text["value"]["truncated"]) == ("utf-8", True)
    assert text["value"]["text"].startswith("für allefür")
    assert nothing["value"] is None
    assert (nothing["key"]["encoding"], nothing["key"]["text"]) == ("base64", "gA==")
    error_of(letters.get("/api/topic/message/download?topic=large&partition=0&offset=2"), 404)


def test_an_empty_topic_has_no_messages(letters):
    answer = letters.get("/api/topic/messages?topic=empty").json()
    assert (answer["messages"], answer["complete"], answer["next"], answer["previous"]) == (
        [],
        True,
        None,
        None,
    )


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("topic=nothing", 404),
        ("topic=letters&partition=9", 404),
        ("topic=letters&offset=3", 400),
        ("topic=letters&partition=0&offset=3&time_ms=4", 400),
        ("topic=letters&partition=0&offset=-1", 400),
        ("topic=letters&partition=0&offset=99999999999999999999", 400),
        ("topic=letters&limit=100000", 400),
        ("topic=letters&from=middle", 400),
        ("topic=letters&cursor=x", 400),
        ("topic=letters&cursor=f:0@1,", 400),
        ("topic=", 400),
    ],
)
def test_a_wrong_place_is_refused(letters, query, status):
    error_of(letters.get(f"/api/topic/messages?{query}"), status)


def test_a_message_that_is_not_there_is_not_found(letters):
    assert "offset 50" in error_of(letters.get("/api/topic/message?topic=letters&partition=0&offset=50"), 404)
    error_of(letters.get("/api/topic/message?topic=letters&partition=5&offset=0"), 404)
