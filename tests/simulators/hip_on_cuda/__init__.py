"""HIP's C ABI on NVIDIA's GPUs: libraries that hip-python loads as AMD's and that forward to CUDA.

``libamdhip64.so`` forwards to the CUDA driver, ``libhiprtc.so`` to NVRTC. With them the code that calls
hip-python runs on a real GPU, or, where there is none, on the software CUDA driver beside it:

    python -m simulators.hip_on_cuda [--software] [arguments of pytest]

It proves what such code does with pointers, handles and threads, what it leaves behind, how it reacts to
errors, and, on a GPU, that a replay computes what was captured. It proves nothing about AMD's runtime or
hardware: not what a call does in a capture, which calls break one, what a dump looks like, nor how fast
anything is. What differs on purpose, and shows:

- Errors are translated: what HIP has no number for becomes the nearest, or ``hipErrorUnknown``.
- ``hipGraphInstantiateWithFlags`` refuses the flags that AMD's runtime refuses, though CUDA has them.
- ``hipStreamGetDevice`` does not break a capture of the stream, as CUDA's function would.
- A copy of any kind but to or from the device is over when ``hipMemcpy`` returns.
- ``hiprtc`` compiles for device 0, whatever architecture it is told, and ``wall_clock64`` counts 100 MHz.
  The architecture that the properties of a device name is one of NVIDIA's, such as ``sm_90``.
- ``hipModuleLoadDataEx`` takes no notice of its options, nor ``hipEventCreateWithFlags`` and
  ``hipHostMalloc`` of the flags about coherence.
- ``hipModuleGetFunction`` also loads the function, which CUDA may put off until a launch.
- A kernel is a function of a module; those that a compiler puts into a host program are unknown here.
- Whoever changes the current context through CUDA's own functions changes it for HIP, too.
"""
