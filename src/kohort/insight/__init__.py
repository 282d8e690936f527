"""What a cluster tells about its groups: samples, trends, health, rebalances; for the command line and the console."""
