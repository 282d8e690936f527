"""The client of a schema registry: what it asks, what it keeps, and what it does with every kind of bad answer."""

from __future__ import annotations

import base64
import gzip
import os
import pickle
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kohort.serde.errors import (
    RegistryAccessDenied,
    RegistryError,
    RegistryUnavailable,
    SchemaNotFound,
    SchemaRefused,
)
from kohort.serde.registry import RegisteredSchema, SchemaReference, SchemaRegistry
from tests.serde.registry_server import Registry, running_registry

STRING = '{"type":"string"}'


def quick(url: str, **more: Any) -> SchemaRegistry:
    named = {name.replace("_", "."): value for name, value in more.items()}
    return SchemaRegistry({"url": url, "retries.wait.ms": 1, "timeout": 5, **named})


def test_a_schema_is_registered_and_found_again(registry: SchemaRegistry) -> None:
    schema_id = registry.register("orders-value", "AVRO", STRING)
    assert registry.schema(schema_id) == RegisteredSchema(schema_id, "AVRO", STRING)
    assert registry.latest("orders-value") == RegisteredSchema(
        schema_id, "AVRO", STRING, (), "orders-value", 1
    )
    assert registry.version("orders-value", 1) == registry.latest("orders-value")
    assert registry.lookup("orders-value", "AVRO", STRING) == registry.latest("orders-value")


def test_subjects_may_have_any_characters(registry: SchemaRegistry) -> None:
    schema_id = registry.register("a/b c?d-value", "JSON", '{"title":"x"}')
    assert registry.latest("a/b c?d-value").id == schema_id
    assert registry.latest("a/b c?d-value").kind == "JSON"


def test_ids_versions_and_registrations_are_asked_for_once(
    server: Registry, registry: SchemaRegistry
) -> None:
    for _ in range(3):
        schema_id = registry.register("s", "AVRO", STRING)
        registry.schema(schema_id)
        registry.version("s", 1)
        registry.latest("s")
    assert server.asked() == [
        "/subjects/s/versions",
        "/schemas/ids/1",
        "/subjects/s/versions/1",
        "/subjects/s/versions/latest",
    ]


def test_the_latest_version_is_asked_for_again_after_its_time(server: Registry) -> None:
    with quick(server.url, cache_latest_ttl_sec=0) as registry:
        registry.register("s", "AVRO", STRING)
        assert registry.latest("s").version == 1
        registry.register("s", "AVRO", '{"type":"int"}')
        assert registry.latest("s").version == 2


def test_no_more_schemas_are_kept_than_allowed(server: Registry) -> None:
    with quick(server.url, cache_capacity=2) as registry:
        ids = [
            registry.register("s", "AVRO", f'{{"type":"fixed","name":"F","size":{n}}}') for n in range(1, 4)
        ]
        for schema_id in (*ids, *ids):
            assert registry.schema(schema_id).id == schema_id
        assert len(server.asked("GET")) == 6


def test_normalizing_is_asked_for(server: Registry, registry: SchemaRegistry) -> None:
    registry.register("s", "AVRO", STRING, normalize=True)
    registry.lookup("s", "AVRO", STRING, normalize=True)
    assert server.asked() == ["/subjects/s/versions?normalize=true", "/subjects/s?normalize=true"]


def test_references_are_followed_and_come_before_what_needs_them(registry: SchemaRegistry) -> None:
    def register(name: str, *needs: str) -> None:
        text = f'{{"type":"record","name":"{name}","fields":[]}}'
        registry.register(name, "AVRO", text, [SchemaReference(each, each, 1) for each in needs])

    register("A")
    register("B", "A")
    register("C", "A", "B")
    register("D", "C", "A")
    found = registry.references_of(registry.latest("D"))
    assert list(found) == ["A", "B", "C"]
    assert found["B"].references == (SchemaReference("A", "A", 1),)


def test_references_in_a_circle_end(server: Registry, registry: SchemaRegistry) -> None:
    one = {"schema": STRING, "references": [{"name": "b", "subject": "b", "version": 1}]}
    two = {"schema": STRING, "references": [{"name": "a", "subject": "a", "version": 1}]}
    server.schemas, server.subjects = {1: one, 2: two}, {"a": [1], "b": [2]}
    assert set(registry.references_of(registry.latest("a"))) == {"a", "b"}


def test_many_threads_ask_once(server: Registry, registry: SchemaRegistry) -> None:
    schema_id = registry.register("s", "AVRO", STRING)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(registry.schema, [schema_id] * 64))
    assert {schema.id for schema in found} == {schema_id}
    assert server.asked("GET") == [f"/schemas/ids/{schema_id}"]


def test_it_travels_to_another_process_and_survives_a_fork(
    server: Registry, registry: SchemaRegistry
) -> None:
    schema_id = registry.register("s", "AVRO", STRING)
    with pickle.loads(pickle.dumps(registry)) as copy:
        assert copy.schema(schema_id).text == STRING
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if registry.schema(schema_id).text == STRING else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert registry.schema(schema_id).text == STRING


def test_a_fork_while_another_thread_asks(server: Registry, registry: SchemaRegistry) -> None:
    schema_id = registry.register("s", "AVRO", STRING)
    server.fault("ids/9", body=b"x" * 40, seconds_a_byte=0.02, times=1)

    def ask_for_the_slow_one() -> None:
        with pytest.raises(RegistryError):
            registry.schema(9)

    waiting = threading.Thread(target=ask_for_the_slow_one, daemon=True)
    waiting.start()
    while "/schemas/ids/9" not in server.asked():
        threading.Event().wait(0.005)
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # ends a child that waits for the other thread, which it does not have
        try:
            os._exit(0 if registry.schema(schema_id).text == STRING else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    waiting.join(30)


def test_one_client_to_one_place_is_shared(server: Registry) -> None:
    shared = SchemaRegistry.shared(server.url)
    assert SchemaRegistry.shared({"schema.registry.url": server.url}) is shared
    shared.close()


# --- who may -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["user info", "url", "bearer"])
def test_credentials_are_sent(server: Registry, how: str) -> None:
    basic = "Basic " + base64.b64encode(b"me:s:cret").decode()
    server.authorization = "Bearer abc" if how == "bearer" else basic
    settings: dict[str, dict[str, object]] = {
        "user info": {"url": server.url, "basic.auth.user.info": "me:s:cret"},
        "url": {
            "url": server.url.replace("http://", "http://me:s%3Acret@"),
            "basic.auth.credentials.source": "URL",
        },
        "bearer": {
            "url": server.url,
            "bearer.auth.token": "abc",
            "bearer.auth.credentials.source": "STATIC_TOKEN",
            "bearer.auth.logical.cluster": "lsrc-1",
            "bearer.auth.identity.pool.id": "pool-1",
        },
    }
    with SchemaRegistry(settings[how]) as registry:
        registry.register("s", "AVRO", STRING)
    if how == "bearer":
        assert server.requests[0].headers["target-sr-cluster"] == "lsrc-1"
        assert server.requests[0].headers["confluent-identity-pool-id"] == "pool-1"


def test_a_wrong_password_is_told_and_not_tried_again(server: Registry) -> None:
    server.authorization = "Basic x"
    with (
        quick(server.url, basic_auth_user_info="me:wrong") as registry,
        pytest.raises(RegistryAccessDenied, match=r"check basic\.auth\.user\.info") as refused,
    ):
        registry.schema(1)
    assert (refused.value.status, refused.value.error_code, refused.value.retriable) == (401, 40101, False)
    assert "wrong" not in str(refused.value)
    assert len(server.requests) == 1


# --- bad answers ---------------------------------------------------------------------------------------


def test_an_unknown_id_is_told(registry: SchemaRegistry) -> None:
    with pytest.raises(SchemaNotFound, match="schema id 17 is not in the schema registry at http") as unknown:
        registry.schema(17)
    assert (unknown.value.status, unknown.value.error_code) == (404, 40403)
    again = pickle.loads(pickle.dumps(unknown.value))
    assert (str(again), again.error_code) == (str(unknown.value), 40403)


def test_an_unknown_subject_and_version_are_told(registry: SchemaRegistry) -> None:
    with pytest.raises(SchemaNotFound, match="the latest schema of subject s is not"):
        registry.latest("s")
    registry.register("s", "AVRO", STRING)
    with pytest.raises(SchemaNotFound, match="version 2 of subject s is not"):
        registry.version("s", 2)
    with pytest.raises(SchemaNotFound, match="this schema under subject s is not"):
        registry.lookup("s", "AVRO", '{"type":"int"}')


def test_a_refused_schema_is_told(server: Registry, registry: SchemaRegistry) -> None:
    with pytest.raises(SchemaRefused, match="42201 Invalid schema"):
        registry.register("s", "AVRO", "no schema")
    server.incompatible.add("s")
    with pytest.raises(SchemaRefused, match="incompatible with an earlier schema"):
        registry.register("s", "AVRO", STRING)


def test_an_error_that_passes_is_not_seen(server: Registry, registry: SchemaRegistry) -> None:
    server.fault(
        "versions", status=500, body=b'{"error_code": 50001, "message": "Error in the backend"}', times=1
    )
    server.fault("versions", status=429, times=1)
    server.fault("versions", hang_up=True, times=1)
    assert registry.register("s", "AVRO", STRING) == 1
    assert len(server.requests) == 4


def test_an_error_that_stays_is_told_after_the_retries(server: Registry, registry: SchemaRegistry) -> None:
    server.fault("ids", status=503, body=b'{"error_code": 50301, "message": "Not now"}')
    with pytest.raises(
        RegistryUnavailable, match=r"asked for schema id 1 4 times .*HTTP 503: 50301 Not now"
    ) as away:
        registry.schema(1)
    assert away.value.retriable
    assert len(server.requests) == 4


def test_a_registry_that_is_away_is_told() -> None:
    with socket.socket() as taken:  # bound and not listening: connections are refused
        taken.bind(("127.0.0.1", 0))
        with (
            quick(f"http://127.0.0.1:{taken.getsockname()[1]}") as registry,
            pytest.raises(RegistryUnavailable, match="check that it runs"),
        ):
            registry.schema(1)


def test_another_url_takes_over(server: Registry) -> None:
    with running_registry() as other:
        other.fault("", status=503)
        with quick(f"{other.url},{server.url}", max_retries=0) as registry:
            assert registry.register("s", "AVRO", STRING) == 1
            assert registry.schema(1).text == STRING
        assert (len(other.requests), len(server.requests)) == (1, 2), "the one that answered is asked first"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"<html>Welcome</html>", "answered what no schema registry does: <html>"),
        (b"", "answered what no schema registry does: nothing"),
        (b"[1]", "answered what no schema registry does"),
        (b'{"a": 1}', "has no schema in it"),
        (b'{"schema": 5}', "has no schema in it"),
        (b'{"schema": "x", "schemaType": "THRIFT"}', "of the kind 'THRIFT'"),
        (b'{"schema": "x", "references": [{"name": "a"}]}', "reference without name, subject or version"),
    ],
)
def test_an_answer_that_is_none_is_told(
    server: Registry, registry: SchemaRegistry, body: bytes, words: str
) -> None:
    server.fault("ids", body=body)
    with pytest.raises(RegistryError, match=words) as wrong:
        registry.schema(1)
    assert not wrong.value.retriable
    assert len(server.requests) == 1


def test_an_answer_without_an_id_is_told(server: Registry, registry: SchemaRegistry) -> None:
    server.fault("versions", body=b'{"id": "one"}')
    with pytest.raises(RegistryError, match="has no id in it"):
        registry.register("s", "AVRO", STRING)


def test_a_wrong_path_is_told_from_an_unknown_schema(server: Registry) -> None:
    server.fault("wrong", status=404, body=b"<html>no such page</html>")
    with (
        quick(server.url + "/wrong") as registry,
        pytest.raises(RegistryError, match="knows no such path") as wrong,
    ):
        registry.schema(1)
    assert not isinstance(wrong.value, SchemaNotFound)


def test_a_redirect_is_told(server: Registry, registry: SchemaRegistry) -> None:
    server.fault("ids", status=301, headers={"Location": "https://elsewhere.example/schemas/ids/1"})
    with pytest.raises(RegistryError, match=r"redirects to https://elsewhere.example.*give that address"):
        registry.schema(1)


def test_a_slow_answer_ends_in_time(server: Registry) -> None:
    server.fault("ids", body=b'{"schema": "x"}' * 100, seconds_a_byte=0.05)
    begun = time.monotonic()
    with (
        quick(server.url, timeout=0.3, max_retries=1) as registry,
        pytest.raises(RegistryUnavailable, match=r"no whole answer within 0.3 s"),
    ):
        registry.schema(1)
    assert time.monotonic() - begun < 30


def test_no_answer_at_all_ends_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.listen()
        with (
            quick(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=0.2, max_retries=1) as registry,
            pytest.raises(RegistryUnavailable, match=r"no answer within 0\.2 s"),
        ):
            registry.schema(1)


def test_a_gigantic_answer_is_not_read_to_its_end(server: Registry, registry: SchemaRegistry) -> None:
    bomb = gzip.compress(bytes(33 * 1024 * 1024))
    server.fault("ids", body=bomb, headers={"Content-Encoding": "gzip"})
    with pytest.raises(RegistryError, match="more than 32 MiB"):
        registry.schema(1)


def test_a_broken_encoding_is_no_answer(server: Registry, registry: SchemaRegistry) -> None:
    server.fault("ids", body=b"no gzip", headers={"Content-Encoding": "gzip"})
    with pytest.raises(RegistryUnavailable, match="schema id 1"):
        registry.schema(1)


def test_threads_that_wait_for_a_slow_registry_are_not_in_the_way_of_others(
    server: Registry, registry: SchemaRegistry
) -> None:
    known = registry.register("s", "AVRO", STRING)
    registry.schema(known)
    server.fault("ids/9", body=b"x" * 40, seconds_a_byte=0.02, times=1)

    def ask_for_the_slow_one() -> None:
        with pytest.raises(RegistryError):
            registry.schema(9)

    waiting = threading.Thread(target=ask_for_the_slow_one, daemon=True)
    waiting.start()
    while "/schemas/ids/9" not in server.asked():
        threading.Event().wait(0.005)
    assert registry.schema(known).id == known  # does not wait for the other thread's answer
    assert waiting.is_alive()
    waiting.join(30)
