"""`kohort console`, and the console of `kohort serve`."""
