"""The driver's side of a query: what there is to read, how far a micro-batch goes, what the group commits."""
