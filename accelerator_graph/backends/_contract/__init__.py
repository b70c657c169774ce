"""Types of the contract that `accelerator_graph.backends.base` exports."""
