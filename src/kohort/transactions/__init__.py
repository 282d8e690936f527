"""The transaction coordinator. Sans-IO: events and a time in, effects out; only replay writes durable state."""
