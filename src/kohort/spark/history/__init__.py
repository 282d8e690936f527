"""The built-in pipeline `group-history`: `__consumer_offsets` as tables and pictures."""
