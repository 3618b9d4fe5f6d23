"""cuda-bindings from PyPI as a client: NVIDIA's own Python binding of the driver API."""
from cuda.bindings import driver

print("init", int(driver.cuInit(0)[0]))
code, count = driver.cuDeviceGetCount()
print("count", int(code), count)
if int(code) == 0:
    code, device = driver.cuDeviceGet(0)
    code, uuid = driver.cuDeviceGetUuid(device)
    print("uuid", uuid.bytes[:4].hex())
    print("context", int(driver.cuDevicePrimaryCtxRetain(device)[0]))
