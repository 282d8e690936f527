"""The half of the client that does I/O: sockets, TLS, SASL, and the engines that drive the parts without I/O."""
