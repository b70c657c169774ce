"""One of two distributions that offer a backend of the same name. Neither is ever imported."""

raise AssertionError("a backend was imported although its name is ambiguous")
