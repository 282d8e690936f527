"""What a task does, in a process that Spark keeps for Python code."""
