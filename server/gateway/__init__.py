"""Communication with engines: command streams, requests and answers."""
