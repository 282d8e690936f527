"""What all commands share: how they are found, how they reach a cluster, how they print, how they end."""
