"""`kohort doctor`: checks what is needed, and says what to do."""
