"""Keeps the partitions of a node on disk or in memory."""
