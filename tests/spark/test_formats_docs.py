"""docs/spark-formats.md: its examples work, one after the other."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kohort import Producer
from kohort.spark.formats.format_options import READ_OPTIONS, WRITE_OPTIONS
from tests.clients.process import BrokerProcess
from tests.serde.registry_server import running_registry

PAGE = (Path(__file__).parents[2] / "docs" / "spark-formats.md").read_text("utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def test_the_examples_work(
    spark: Any, broker: BrokerProcess, new_topic: Callable[..., str], capsys: Any
) -> None:
    source, target = new_topic(), new_topic()
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(5):
            value = b'{"id":%d,"customer":"anna","price":%d.50}' % (number, number * 5)
            producer.send(source, value=value, key=b"%d" % number)
    names: dict[str, Any] = {"spark": spark}

    def run(block: str, url: str = "") -> None:
        text = block.replace("127.0.0.1:9092", broker.bootstrap_servers).replace("http://127.0.0.1:8081", url)
        exec(text.replace('"orders"', f'"{source}"').replace('"large-orders"', f'"{target}"'), names)

    reading, writing, checking, some = BLOCKS
    run(reading)
    with running_registry() as registry:
        run(writing, registry.url)
        back = spark.read.format("kohort").option("kafka.bootstrap.servers", broker.bootstrap_servers)
        back = (
            back.option("subscribe", target)
            .option("valueFormat", "avro")
            .option("schema.registry.url", registry.url)
        )
        assert sorted(row.value.id for row in back.load().collect()) == [2, 3, 4]
    run(some)
    assert names["ids"].selectExpr("sum(value.id)").first()[0] == 10
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send(source, value=b'{"id":"x"}')
    run(checking)
    assert names["checked"].where("_corrupt IS NOT NULL").count() == 1
    assert 'field id: "x" is no integer' in capsys.readouterr().out


def test_every_option_is_in_the_table() -> None:
    for name in {*READ_OPTIONS, *WRITE_OPTIONS}:
        shown = name.replace("key", "value", 1) if name.startswith("key") else name
        assert f"`{shown}`" in PAGE or f"`{shown}=" in PAGE or f"`{shown} " in PAGE, name
