"""Share groups (KIP-932) on the client's side: membership, share sessions, records in flight, acknowledgements."""
