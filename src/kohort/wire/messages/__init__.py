"""The classes of all messages, one module per API. Generated from schema/ by `make messages`."""
