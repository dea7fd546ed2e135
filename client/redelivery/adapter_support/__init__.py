"""Parts that adapters share: sockets, response timeouts, and the log of what goes over the wire."""
