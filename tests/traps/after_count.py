"""The program counts the GPUs first: the framework asks NVML, not the driver."""
import framework

framework.device_count()
framework.choose()
print(framework.tensor())
