"""The classic protocol: join, sync, heartbeat, rebalance."""
