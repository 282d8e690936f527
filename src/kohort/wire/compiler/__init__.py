"""The compiler that turns the texts of `schema/` into classes and codecs."""
