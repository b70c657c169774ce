import a_runtime_not_installed  # noqa: F401
