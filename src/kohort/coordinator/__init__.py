"""The group coordinator as a sans-IO core: events go in, effects come out; it has no clock, sockets or randomness."""
