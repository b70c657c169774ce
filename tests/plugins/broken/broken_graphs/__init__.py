"""Every way in which a plug-in can be wrong."""

from accelerator_graph.backends.base import BACKEND_API_VERSION, Availability, Backend


class Incomplete(Backend):
    api_version = BACKEND_API_VERSION

    @classmethod
    def probe(cls):
        return Availability(True)


class Stranger:
    api_version = BACKEND_API_VERSION


class Old(Incomplete):
    api_version = BACKEND_API_VERSION - 1


class New(Incomplete):
    api_version = BACKEND_API_VERSION + 1


class Unversioned(Backend):
    pass


def _nothing(self, *args, **how):
    return None


class ProbeRaises(Incomplete):
    @classmethod
    def probe(cls):
        raise OSError("the device is on fire")

    for _name in Backend.__abstractmethods__ - {"probe"}:
        locals()[_name] = _nothing


an_instance = Stranger()
