"""What every process of the engine uses: settings, clock, failpoints, child processes, fault policy."""
