"""Share groups: the records of a share partition, share sessions, and the share coordinator. Sans-IO."""
