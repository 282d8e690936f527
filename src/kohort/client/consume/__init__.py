"""Fetching, handing out, and what each call of a consumer does. Sans-IO."""
