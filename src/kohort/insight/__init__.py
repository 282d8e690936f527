"""What a cluster tells about its groups: samples, trends, health, rebalances and resets, for people."""
