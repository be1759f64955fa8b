"""The control plane: REST interface, desired state, history and freshness waits. It opens no user database."""
