"""When a write is on disk: group commit and the journal of small appends."""
