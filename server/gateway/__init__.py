"""How the server reaches the engines: their command streams, requests on them, and the answers."""
