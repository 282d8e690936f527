"""The command line: `kohort …`."""
