"""Fetches records, hands them out, and says what each call of a consumer does. Does no I/O."""
