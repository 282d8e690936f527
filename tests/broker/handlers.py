"""A node without sockets: requests go to the handlers of the table, through real bytes both ways."""

from __future__ import annotations

import asyncio
import shutil
from inspect import isawaitable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kohort.broker.apis import configs
from kohort.broker.apis.table import TABLE
from kohort.broker.broker import Broker
from kohort.broker.call import Call, Encoded, release
from kohort.broker.config import BrokerConfig
from kohort.broker.fetch_sessions import FetchSessions
from kohort.log.partition import Durability
from kohort.log.storage.files import Slice
from kohort.log.store import Store
from kohort.security.acls import ANONYMOUS
from kohort.wire.frame import read_response_header
from kohort.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kohort.wire.records.batch import BatchRecord, encode_batch, read_header
from kohort.wire.struct import Message

NOW_MS = 1_700_000_000_000


class Node:
    """`with Node(num_partitions=3) as node: node.call(MetadataRequest(None), version=9)`"""

    def __init__(
        self, directory: Path | None = None, settings: dict[str, str] | None = None, **more: object
    ) -> None:
        given = {name.replace("_", "."): str(value).lower() for name, value in more.items()}
        durability: Durability = "memory" if directory is None else "os"
        config = BrokerConfig.parse({"durability": durability, **given, **(settings or {})})
        self.loop = asyncio.new_event_loop()
        self.store = Store.open(
            directory,
            durability=durability,
            defaults=config.topic_defaults,
            now_ms=NOW_MS,
            call_soon=lambda work: work(),
            node_id=config.node_id,
        )
        config = configs.restore(config, self.store)
        self.broker = Broker(config, self.store, "kohort.test", 9092, FetchSessions(10, lambda: 1))

    def __enter__(self) -> Node:
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()

    def crash(self) -> Path:
        """End the node, and return a copy of the directory as a crash at this moment would have left it."""
        assert self.store.directory is not None
        left = self.store.directory.with_name(self.store.directory.name + "-crashed")
        shutil.copytree(self.store.directory, left)
        self.__exit__()
        return left

    def call(self, request: Message, version: int | None = None) -> Any:
        row = TABLE[request.API_KEY]
        codec = row.codec(row.last if version is None else version)
        arrived = codec.decode_request(memoryview(b"".join(codec.encode_request(request))), 0)
        connection: Any = SimpleNamespace(principal=ANONYMOUS, failed=lambda call, errors: None)
        answer: Any = row.handler(self.broker, Call(connection, codec, 1, "a test", arrived))
        if isawaitable(answer):
            answer = self.loop.run_until_complete(answer)
        if isinstance(answer, Encoded):
            frame = b"".join(b"".join(c.chunks()) if isinstance(c, Slice) else c for c in answer.chunks)
            release(answer.chunks)
            return codec.decode_response(
                memoryview(frame), read_response_header(codec, memoryview(frame)[4:])[1] + 4
            )
        return codec.decode_response(memoryview(b"".join(codec.encode_response(answer))), 0)

    def create(self, name: str, partitions: int = 1, **overrides: object) -> bytes:
        """A topic with these settings; its id."""
        given = [CreatableTopicConfig(key.replace("_", "."), str(value)) for key, value in overrides.items()]
        result = self.call(CreateTopicsRequest([CreatableTopic(name, partitions, 1, [], given)])).topics[0]
        assert result.error_code == 0, result.error_message
        topic_id: bytes = result.topic_id
        return topic_id

    def append(self, topic: str, *timestamps: int, index: int = 0, **batch: Any) -> int:
        """One batch with a record per timestamp; its base offset."""
        records = [
            BatchRecord(at, timestamp, b"key", b"value", []) for at, timestamp in enumerate(timestamps)
        ]
        data = memoryview(encode_batch(records, **batch))
        return self.store.topics[topic].partitions[index].append(data, read_header(data), NOW_MS)
