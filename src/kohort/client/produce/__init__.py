"""A record's way from `send` to the answer of the partition's leader. Sans-IO."""
