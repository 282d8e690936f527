"""The executors' side of a query: tasks that read ranges of offsets into Arrow batches."""
