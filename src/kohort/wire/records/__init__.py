"""Record batches: reads and writes their bytes as records, as columns and as Arrow."""
