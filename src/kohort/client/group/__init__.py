"""A consumer as the member of a group: its coordinator, its membership, the assignors. Sans-IO."""
