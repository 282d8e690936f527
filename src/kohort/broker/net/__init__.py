"""Serves connections: frames in, calls to the handlers, answers out."""
