"""Security around the sans-IO core: settings of listeners, users, ACLs, and what handlers ask."""
