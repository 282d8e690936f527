"""The classic group protocol: join, sync, heartbeat, rebalance."""
