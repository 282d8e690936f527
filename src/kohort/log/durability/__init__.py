"""Makes appends durable: group commit, and the journal of small appends."""
