"""`kohort top`: a live view of groups, lag and rates."""
