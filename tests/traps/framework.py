"""What the programs of the guide ask a framework for.

With TRAP_FRAMEWORK=torch it is PyTorch. Else it is a stand-in that comes to the driver when PyTorch was measured to
(2.11, driver 580): not at import, not for device_count(), but for is_available() and for a tensor; and which remembers
that it failed no more than the driver does."""
import ctypes
import os

ERRORS = {100: "no GPU", 101: "invalid list", 3: "no GPU", 46: "GPU refused"}

if os.environ.get("TRAP_FRAMEWORK") == "torch":
    import torch

    def device_count():
        return torch.cuda.device_count()

    def is_available():
        return torch.cuda.is_available()

    def tensor(ordinal=None):
        """Where a tensor lies: the GPU's UUID, or in a word why there is none."""
        try:
            made = torch.ones(1, device="cuda" if ordinal is None else f"cuda:{ordinal}")
            uuid = str(torch.cuda.get_device_properties(made.device).uuid)
            return "GPU-" + uuid.removeprefix("GPU-")[:8]
        except (RuntimeError, AssertionError) as error:
            return "no such GPU" if "ordinal" in str(error) else "no GPU"

else:
    _driver = ctypes.CDLL("libcuda.so.1")

    def device_count():
        value = os.environ.get("CUDA_VISIBLE_DEVICES")
        return len(value.split(",")) if value else 0

    def is_available():
        count = ctypes.c_int()
        return _driver.cuInit(0) == 0 and _driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0

    def tensor(ordinal=None):
        """Where a tensor lies: the GPU's UUID, or in a word why there is none."""
        code = _driver.cuInit(0)
        if code:
            return ERRORS.get(code, f"error {code}")
        device, uuid, context = ctypes.c_int(), ctypes.create_string_buffer(16), ctypes.c_void_p()
        code = _driver.cuDeviceGet(ctypes.byref(device), ordinal or 0)
        if code:
            return "no such GPU" if code == 101 else ERRORS.get(code, f"error {code}")
        code = _driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
        if code or _driver.cuDeviceGetUuid(uuid, device):
            return ERRORS.get(code, f"error {code}")
        return "GPU-" + uuid.raw[:4].hex()


def choose():
    """The line that everybody writes."""
    os.environ["CUDA_VISIBLE_DEVICES"] = os.environ["TRAP_RIGHT"]
