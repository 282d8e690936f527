"""Kafka's wire protocol: encodes and decodes messages and record batches, without I/O and without a clock."""
