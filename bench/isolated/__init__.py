"""Parts of the engine by themselves, as processes that the benchmark starts. Nothing else uses them."""
