"""The other side of the wire: consumer, producer, admin. `from kohort import Consumer` is the way in."""
