"""What a consumer reads and where it stands: subscription, positions, commits. Does no I/O."""
