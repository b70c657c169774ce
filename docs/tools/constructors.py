"""An extension of Griffe: a class with `__new__` and no `__init__` has the signature of `__new__`."""

from typing import Any

import griffe


class Constructors(griffe.Extension):
    """Gives such classes an `__init__` with the same parameters."""

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        """Look at a class, all of whose members are known."""
        new = cls.members.get("__new__")
        if isinstance(new, griffe.Function) and "__init__" not in cls.members:
            cls.set_member("__init__", griffe.Function("__init__", parameters=new.parameters))
