"""What each call of Admin does. Does no I/O."""
