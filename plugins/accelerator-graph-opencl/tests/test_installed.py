import pyopencl


def test_there_is_a_device():
    assert [device for platform in pyopencl.get_platforms() for device in platform.get_devices()]
