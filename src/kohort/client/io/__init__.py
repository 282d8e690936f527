"""The half of the client that waits: sockets, TLS, SASL, and the engines that drive the sans-IO parts."""
