"""asyncio around the core: connections, the table of APIs, one handler per API."""
