"""Who may come in and what they may do: SASL, ACLs and quotas, without I/O and without a clock."""
