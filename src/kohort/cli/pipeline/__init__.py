"""`kohort pipeline`: writes, tries, runs and stops Structured Streaming jobs on Spark."""
