"""Share groups on this node: asyncio around the cores of `kohort.share`."""
