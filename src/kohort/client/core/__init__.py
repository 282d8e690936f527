"""How the parts of a client ask and wait, and what they know of the cluster. Sans-IO."""
