import a_runtime_that_is_not_installed  # noqa: F401
