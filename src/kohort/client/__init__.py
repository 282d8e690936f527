"""The other side of the wire. For now one blocking connection; consumer, producer and admin follow."""
