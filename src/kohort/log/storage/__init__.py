"""Files, indexes and segments of one partition, and what a start finds of them."""
