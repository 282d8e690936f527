"""Stores one partition: its files, indexes and segments, and their recovery at a start."""
