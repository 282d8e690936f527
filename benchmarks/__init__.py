"""Kohort and an Apache Kafka side by side on one machine: `python -m benchmarks --help`."""
