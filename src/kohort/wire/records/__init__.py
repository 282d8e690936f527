"""Record batches: their bytes, as records, as columns, as Arrow."""
