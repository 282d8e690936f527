"""`kohort bench`: measures a cluster through the public client, on topics of its own."""
