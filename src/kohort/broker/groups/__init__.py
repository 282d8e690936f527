"""The group coordinator on this node: its log, its timers, its history."""
