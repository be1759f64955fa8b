"""The control plane: REST interface, desired state, history and freshness waits. It opens no user database.

Folders import downwards only; a contract in pyproject.toml names every layer. From the top: `cli`, the commands; `app` and `routers`, which
assemble the application; `engines`, which applies the reports of engines; the nouns of the REST interface, each with its endpoints,
schemas, service and repository; and what these share: `assessment`, `gateway`, `lookup`, `declarations`, `db`, `security`.
"""
