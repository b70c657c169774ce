"""Every way in which a plug-in can be wrong."""

from accelerator_graph.backends.base import BACKEND_API_VERSIONS, Availability, Backend


class Incomplete(Backend):
    api_version = BACKEND_API_VERSIONS[-1]
    recording = "stream"

    @classmethod
    def probe(cls):
        return Availability(True)


class Stranger:
    api_version = BACKEND_API_VERSIONS[-1]


class Old(Incomplete):
    api_version = BACKEND_API_VERSIONS[0] - 1


class New(Incomplete):
    api_version = BACKEND_API_VERSIONS[-1] + 1


class Unversioned(Backend):
    pass


def _nothing(self, *args, **how):
    return None


def _burn(cls):
    raise OSError("the device is on fire")


ProbeRaises = type(
    "ProbeRaises",
    (Incomplete,),
    {**dict.fromkeys(Backend.__abstractmethods__, _nothing), "probe": classmethod(_burn)},
)

an_instance = Stranger()
