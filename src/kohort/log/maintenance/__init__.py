"""Deletes and compacts what is old: retention and compaction."""
