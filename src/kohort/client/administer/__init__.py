"""What each call of Admin does. Sans-IO."""
