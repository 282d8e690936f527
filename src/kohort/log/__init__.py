"""One partition on disk, and all partitions of a node."""
