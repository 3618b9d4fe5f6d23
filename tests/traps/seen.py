"""What the driver shows this process, asked through ctypes: no framework needed."""
import ctypes

_driver = ctypes.CDLL("libcuda.so.1")


def init():
    """cuInit's result."""
    return _driver.cuInit(0)


def gpus():
    """The UUIDs of the visible GPUs, or cuInit's error in words."""
    code = init()
    if code:
        return {100: "no GPU", 101: "invalid list"}.get(code, f"error {code}")
    count = ctypes.c_int()
    if _driver.cuDeviceGetCount(ctypes.byref(count)):
        return "no GPU"
    found = []
    for ordinal in range(count.value):
        device, uuid = ctypes.c_int(), ctypes.create_string_buffer(16)
        if _driver.cuDeviceGet(ctypes.byref(device), ordinal) or _driver.cuDeviceGetUuid(uuid, device):
            return "an error"
        found.append("GPU-" + uuid.raw[:4].hex())
    return " ".join(found)
