"""Share groups (KIP-932): their members, what these are to read, and which partitions have state."""
