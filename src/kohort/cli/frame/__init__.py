"""What all commands share: how they are found, how they reach a cluster, how they print, how they end."""

COMPLETION = "_KOHORT_COMPLETE"
"""The variable by which a shell asks for completion; the name is click's."""
