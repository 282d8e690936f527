"""Writes and reads payments as objects, in Avro, with a schema registry; needs kohort[serde].

    python examples/typed_records.py --bootstrap 127.0.0.1:9092 --registry http://127.0.0.1:8081

A type checker knows that the consumer's values are payments.
"""

import argparse
from dataclasses import dataclass
from decimal import Decimal

from kohort import Consumer, Producer
from kohort.serde import AvroDeserializer, AvroSerializer, SchemaRegistry

SCHEMA = """{"type": "record", "name": "Payment", "namespace": "shop", "fields": [
    {"name": "order", "type": "long"},
    {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}}]}"""


@dataclass
class Payment:
    order: int
    amount: Decimal


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--registry", default="http://127.0.0.1:8081")
    options = parser.parse_args()
    with SchemaRegistry({"schema.registry.url": options.registry}) as registry:
        to_avro = AvroSerializer(Payment, schema=SCHEMA, registry=registry)
        with Producer(bootstrap_servers=options.bootstrap, value_serializer=to_avro) as producer:
            for order in range(1, 4):
                producer.send("payments", Payment(order, Decimal("9.90") * order))
        print(f"schema version {registry.latest('payments-value').version} is registered")

        from_avro = AvroDeserializer(Payment, registry=registry)
        with Consumer(
            bootstrap_servers=options.bootstrap, auto_offset_reset="earliest", value_deserializer=from_avro
        ) as consumer:
            partitions = consumer.partitions_for("payments")
            consumer.assign(partitions)
            ends = consumer.end_offsets(partitions)
            while any(consumer.position(partition) < end for partition, end in ends.items()):
                for records in consumer.poll(1.0).values():
                    for record in records:
                        assert record.value is not None
                        print(f"order {record.value.order}: {record.value.amount}")


if __name__ == "__main__":
    main()
