"""`kohort pipeline`: a file, its run, and what is shown of it."""
