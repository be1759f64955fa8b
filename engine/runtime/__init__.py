"""The engine's former package: `python -m engine.runtime` still starts the engine, for one release."""
