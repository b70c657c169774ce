"""HIP's C ABI on NVIDIA's GPUs: libraries that hip-python loads as AMD's and that forward to CUDA.

``libamdhip64.so`` forwards to the CUDA driver, ``libhiprtc.so`` to NVRTC. With them the code that calls
hip-python runs on a real GPU, or, where there is none, on the software CUDA driver beside it:

    python -m simulators.hip_on_cuda [--software] [arguments of pytest]

It shows what such code does with pointers, handles and threads, what it leaves behind, how it reacts to
errors, and, on a GPU, that a replay computes what was captured. It shows nothing about AMD's runtime or
hardware: neither what a call does in a capture, nor which calls break one, nor how fast anything is. It has
only the functions that the HIP backend, its conformance tests and the benchmarks call. It differs from CUDA
on purpose in these points:

- Errors are translated: what HIP has no number for becomes the nearest, or ``hipErrorUnknown``.
- ``hipGraphInstantiateWithFlags`` refuses the flags that AMD's runtime refuses.
- ``hipStreamGetDevice`` does not break a capture of the stream, as CUDA's function would.
- ``hipMemcpy`` from device to device returns when the copy is over.
- ``hiprtc`` compiles for device 0, whatever architecture it is told, and ``wall_clock64`` counts 100 MHz.
- ``hipEventCreateWithFlags`` ignores the flags about coherence.
- ``hipModuleGetFunction`` also loads the function, which CUDA may put off until a launch.
- A kernel is a function of a module; the shim knows none that a compiler puts into a host program.
- A program that changes the current context through CUDA's own functions changes it for HIP, too.
"""
