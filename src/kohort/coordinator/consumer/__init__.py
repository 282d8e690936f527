"""Consumer groups of KIP-848: members that heartbeat, a target that the coordinator computes, and the way to it."""
