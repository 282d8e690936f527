"""`kohort produce` and `kohort consume`: records from files and pipes to topics, and back."""
