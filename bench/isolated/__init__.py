"""Parts of the engine, each in a process of its own for the benchmark. Used by nothing else."""
