"""Bytes <-> messages. No I/O, no clock; imports nothing else of Kohort."""
