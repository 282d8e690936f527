"""The table of APIs and one file for each API or family."""
