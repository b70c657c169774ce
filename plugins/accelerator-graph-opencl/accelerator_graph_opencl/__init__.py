"""OpenCL's command buffers as a backend of `accelerator_graph`."""
