"""Small programs that use a GPU, each by another library or in another way: `programs.py NAME`.

Each prints one line that begins with `ok` and holds a result that can be compared, or says how it found no GPU.
A library that is not installed prints `absent`."""
import ctypes
import os
import subprocess
import sys

EXPECTED = 512.0


def torch_matmul():
    import torch

    if not torch.cuda.is_available():
        return "no GPU"
    a = torch.ones(512, 512, device="cuda")
    return f"ok {(a @ a)[3, 5].item()}"


def jax_matmul():
    import jax
    import jax.numpy as jnp

    if jax.default_backend() != "gpu":
        return "no GPU"
    a = jnp.ones((512, 512))
    return f"ok {float((a @ a)[3, 5])}"


def cupy_matmul():
    import cupy

    try:
        a = cupy.ones((512, 512))
        return f"ok {float((a @ a)[3, 5])}"
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"no GPU: {error}"


def numba_add():
    import numpy
    from numba import cuda
    from numba.cuda.cudadrv.error import CudaSupportError

    @cuda.jit
    def add(out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] += 512

    try:
        out = cuda.to_device(numpy.zeros(64))
        add[1, 64](out)
        return f"ok {out.copy_to_host()[7]}"
    except CudaSupportError as error:
        return f"no GPU: {str(error).splitlines()[-1]}"


def triton_add():
    import torch
    import triton  # noqa: F401

    if not torch.cuda.is_available():
        return "no GPU"
    import tempfile

    source = "import triton\nimport triton.language as tl\n@triton.jit\ndef add(x, n: tl.constexpr):\n    i = tl.arange(0, n)\n    tl.store(x + i, tl.load(x + i) + 512)\n"
    folder = tempfile.mkdtemp()
    path = os.path.join(folder, "kernel.py")
    with open(path, "w") as file:
        file.write(source)
    import importlib.util

    spec = importlib.util.spec_from_file_location("kernel", path)
    kernel = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kernel)
    x = torch.zeros(64, device="cuda")
    kernel.add[(1,)](x, 64)
    return f"ok {x[7].item()}"


def bindings():
    from cuda.bindings import driver

    if int(driver.cuInit(0)[0]):
        return "no GPU"
    device = driver.cuDeviceGet(0)[1]
    context = driver.cuDevicePrimaryCtxRetain(device)[1]
    driver.cuCtxSetCurrent(context)
    memory = driver.cuMemAlloc(2048)[1]
    driver.cuMemsetD32(memory, 512, 4)
    out = ctypes.c_int()
    driver.cuMemcpyDtoH(ctypes.addressof(out), memory, 4)
    return f"ok {float(out.value)}"


def onnxruntime_relu():
    import numpy
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper

    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        return "absent"
    value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [4])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [value("x")], [value("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CUDAExecutionProvider"])
    if "CUDAExecutionProvider" not in session.get_providers():
        return "no GPU"
    return f"ok {float(session.run(None, {'x': numpy.full(4, 512, numpy.float32)})[0][0])}"


def ctypes_driver():
    d = ctypes.CDLL("libcuda.so.1")
    code = d.cuInit(0)
    if code:
        return f"no GPU: {code}"
    context, memory, out = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_int()
    d.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    d.cuCtxSetCurrent(context)
    d.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(2048))
    d.cuMemsetD32_v2(memory, 512, ctypes.c_size_t(4))
    d.cuMemcpyDtoH_v2(ctypes.byref(out), memory, ctypes.c_size_t(4))
    return f"ok {float(out.value)}"


# --- Traps: what the program does, and then what the framework and the driver count and whether a tensor works.

def _torch_state():
    import torch

    driver, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(0)
    driver.cuInit(0)
    if driver.cuDeviceGetCount(ctypes.byref(count)):
        count.value = 0
    try:
        torch.ones(1, device="cuda")
        tensor = "works"
    except Exception as error:  # the message is the point
        tensor = "fails"
    return f"count {torch.cuda.device_count()}, driver {count.value}, tensor {tensor}"


def _hide():
    os.environ["CUDA_VISIBLE_DEVICES"] = ""


def trap_before():
    _hide()
    return _torch_state()


def trap_after_import():
    import torch  # noqa: F401

    _hide()
    return _torch_state()


def trap_after_count():
    import torch

    torch.cuda.device_count()
    _hide()
    return _torch_state()


def trap_after_available():
    import torch

    torch.cuda.is_available()
    _hide()
    return _torch_state()


def trap_after_tensor():
    import torch

    try:
        torch.ones(1, device="cuda")
    except Exception:
        pass
    _hide()
    return _torch_state()


def untouched():
    return _torch_state()


def trap_shown_before():
    os.environ["CUDA_VISIBLE_DEVICES"] = "0"
    return _torch_state()


def trap_deleted():
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    return _torch_state()


def trap_hidden_then_shown():
    import torch

    _hide()
    try:
        torch.ones(1, device="cuda")
    except Exception:
        pass
    os.environ["CUDA_VISIBLE_DEVICES"] = "0"
    return _torch_state()


# --- Life of a process.

def _torch_sum(_=None):
    import torch

    return float(torch.ones(512, device="cuda").sum().item())


def spawn():
    import torch.multiprocessing as mp

    with mp.get_context("spawn").Pool(2) as pool:
        return f"ok {pool.map(_torch_sum, [0, 1])[0]}"


def forkserver():
    import torch.multiprocessing as mp

    with mp.get_context("forkserver").Pool(1) as pool:
        return f"ok {pool.map(_torch_sum, [0])[0]}"


def fork_before():
    import torch.multiprocessing as mp

    with mp.get_context("fork").Pool(2) as pool:
        return f"ok {pool.map(_torch_sum, [0, 1])[0]}"


def fork_after():
    _torch_sum()
    child = os.fork()
    if not child:
        code = ctypes.CDLL("libcuda.so.1").cuInit(0)
        os._exit(code)
    return f"ok child's cuInit {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}"


def loader():
    import torch

    data = torch.utils.data.TensorDataset(torch.ones(512))
    total = 0.0
    for (batch,) in torch.utils.data.DataLoader(data, batch_size=64, num_workers=2, pin_memory=True):
        total += batch.cuda(non_blocking=True).sum().item()
    return f"ok {total}"


def threads():
    import threading

    import torch

    results = []
    workers = [threading.Thread(target=lambda: results.append(torch.ones(512, device="cuda").sum().item())) for _ in range(8)]
    [w.start() for w in workers]
    [w.join() for w in workers]
    return f"ok {sum(results) / 8}"


def compiled():
    import torch

    f = torch.compile(lambda x: (x * 2).sum() / 2)
    return f"ok {f(torch.ones(512, device='cuda')).item()}"


def graphs():
    import torch

    x = torch.ones(512, device="cuda")
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x.sum()
    graph.replay()
    return f"ok {y.item()}"


def nccl():
    import torch
    import torch.distributed as dist

    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", str(20000 + os.getpid() % 20000))
    dist.init_process_group("nccl", rank=0, world_size=1)
    x = torch.ones(512, device="cuda")
    dist.all_reduce(x)
    dist.destroy_process_group()
    return f"ok {x.sum().item()}"


def torchrun():
    port = 20000 + os.getpid() % 20000
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "1", "--master-port", str(port), __file__, "rank"]
    out = subprocess.run(command, capture_output=True, text=True)
    return out.stdout.strip().splitlines()[-1] if out.returncode == 0 else "failed: " + out.stderr.strip().splitlines()[-1]


def rank():
    import torch
    import torch.distributed as dist

    dist.init_process_group("nccl")
    x = torch.ones(512, device="cuda")
    dist.all_reduce(x)
    total = x.sum().item()
    dist.destroy_process_group()
    return f"ok {total}"


def accelerate():
    command = [sys.executable, "-m", "accelerate.commands.launch", "--num_processes", "1", "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no", __file__, "accelerated"]
    out = subprocess.run(command, capture_output=True, text=True)
    return out.stdout.strip().splitlines()[-1] if out.returncode == 0 else "failed: " + out.stderr.strip().splitlines()[-1]


def accelerated():
    import torch
    from accelerate import Accelerator

    device = Accelerator().device
    return f"ok {torch.ones(512, device=device).sum().item()}" if device.type == "cuda" else "no GPU"


def execed():
    os.execv(sys.executable, [sys.executable, __file__, "torch_matmul"])


def empty_environment():
    out = subprocess.run([sys.executable, __file__, "ctypes_driver"], env={}, capture_output=True, text=True)
    return out.stdout.strip()


def ipc():
    import torch.multiprocessing as mp

    context = mp.get_context("spawn")
    queue = context.Queue()
    done = context.Event()
    process = context.Process(target=_ipc_child, args=(queue, done))
    process.start()
    total = queue.get().sum().item()
    done.set()
    process.join()
    return f"ok {total}"


def _ipc_child(queue, done):
    import torch

    x = torch.ones(512, device="cuda")
    queue.put(x)
    done.wait()


def killed():
    import signal

    out = subprocess.run([sys.executable, __file__, "dies"], capture_output=True, text=True)
    return f"ok ended by signal {-out.returncode}" if out.returncode == -signal.SIGKILL else f"failed: {out.stderr[-200:]}"


def dies():
    _torch_sum()
    os.kill(os.getpid(), 9)


# --- Behind Cuvisor's back: a deep-bound library calls cuInit first.

def behind(library, then):
    os.environ["CUDA_VISIBLE_DEVICES"] = "0"
    code = ctypes.CDLL(library, mode=os.RTLD_NOW | os.RTLD_DEEPBIND).deep_init()
    try:
        return f"deep cuInit {code}; then {globals()[then]()}"
    except Exception as error:
        return f"deep cuInit {code}; then {type(error).__name__}: {str(error).strip().splitlines()[0]}"


# --- Cost.

def cost():
    import time

    start = time.perf_counter()
    import torch

    imported = time.perf_counter()
    x = torch.ones(1024, device="cuda")
    torch.cuda.synchronize()
    first = time.perf_counter()
    for _ in range(10_000):
        x.add_(1)
    torch.cuda.synchronize()
    launched = time.perf_counter()
    model = torch.nn.Linear(1024, 1024).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batch = torch.randn(256, 1024, device="cuda")
    for _ in range(200):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
    torch.cuda.synchronize()
    trained = time.perf_counter()
    steps = [imported - start, first - imported, launched - first, trained - launched]
    return "ok " + " ".join(f"{s:.4f}" for s in steps)


if __name__ == "__main__":
    try:
        print(globals()[sys.argv[1]](*sys.argv[2:]), flush=True)
    except ModuleNotFoundError as error:
        print(f"absent: {error.name}", flush=True)
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        print(f"{type(error).__name__}: {lines[0][:150]}", flush=True)
