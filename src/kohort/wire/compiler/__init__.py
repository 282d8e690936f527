"""Turns the texts of `schema/` into codecs."""
