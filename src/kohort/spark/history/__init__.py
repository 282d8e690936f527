"""`__consumer_offsets` as tables and pictures."""
