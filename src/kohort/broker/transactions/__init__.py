"""The transaction coordinator of a node: the sans-IO core with a log, a clock and markers."""
