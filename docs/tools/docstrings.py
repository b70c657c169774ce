"""An extension of Griffe, for what the site would not show well."""

import re
from typing import Any

import griffe


class Docstrings(griffe.Extension):
    """Gives `__new__` and reStructuredText's double colons the meaning that they have for readers."""

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        """Show a class that has `__new__` and no `__init__` with the parameters of `__new__`."""
        new = cls.members.get("__new__")
        if isinstance(new, griffe.Function) and "__init__" not in cls.members:
            cls.set_member("__init__", griffe.Function("__init__", parameters=new.parameters))

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Take away the double colon before code, which Markdown knows by its indentation."""
        if obj.docstring is not None:
            text = re.sub(r"^( *)::$", "", obj.docstring.value, flags=re.MULTILINE)
            obj.docstring.value = re.sub(r"::$", ":", text, flags=re.MULTILINE)
