"""What the groups of the new protocols have in common: consumer groups (KIP-848) and share groups (KIP-932)."""
