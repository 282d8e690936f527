"""The groups. Sans-IO: events go in, effects come out; no clock, no sockets, no randomness of its own."""
