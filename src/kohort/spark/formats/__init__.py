"""Typed records for Spark: JSON, Avro, Protobuf and strings as columns of the source and of the sink."""
