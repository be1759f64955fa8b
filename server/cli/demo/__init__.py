"""The command `penstock demo`: an embedded source under load, a server, an engine, and figures on the terminal."""
