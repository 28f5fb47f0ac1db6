"""What the GPUs of a node are, do and suffer from: read on the node itself, and judged without effects.

It changes nothing on a GPU: no MIG mode, no instance, no reset. It needs the standard library, and only where they are
used `pynvml` (nvidia-ml-py) for NVML and `grpc` (grpcio) for the kubelet; a node without either simply lacks that part.
"""
