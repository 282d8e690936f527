"""What a consumer reads and where it stands: subscription, positions, commits. Sans-IO."""
