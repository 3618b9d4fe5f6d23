"""The rows of scripts/gpu-check.sh: each is run without Cuvisor and with it."""
import concurrent.futures
import json
import os
import pathlib
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import gpu_several

ROOT = pathlib.Path(__file__).resolve().parent.parent
RELEASE, CALLERS = ROOT / "target" / "release", ROOT / "target" / "callers"
PROGRAMS = ROOT / "tests" / "gpu" / "programs.py"
WORK = pathlib.Path(tempfile.mkdtemp(prefix="cuvisor-gpu-"))
LIMIT = 150
DROP = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "LD_PRELOAD")
BASE = {k: v for k, v in os.environ.items() if k not in DROP and not k.startswith("CUVISOR_")}
BASE |= {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "PYTHONDONTWRITEBYTECODE": "1", "TOKENIZERS_PARALLELISM": "false"}
rows, pool = [], concurrent.futures.ThreadPoolExecutor(6)


class Result:
    """What a program left."""

    def __init__(self, out, code, events):
        self.out, self.code, self.events = out, code, events

    def line(self):
        lines = self.out.strip().splitlines()
        return lines[-1] if lines else f"(nothing, exit {self.code})"

    def has(self, event, **members):
        return any(e["event"] == event and all(e.get(k) == v for k, v in members.items()) for e in self.events)


def run(command, devices=None, mode=None, env=None, limit=LIMIT, extra=()):
    """Runs a command; with Cuvisor where devices or a mode are given."""
    folder = pathlib.Path(tempfile.mkdtemp(dir=WORK))
    audit = folder / "audit.jsonl"
    environment = BASE | (env or {})
    if devices is not None:
        wrap = [str(RELEASE / "cuvisor"), "run", "--devices", devices, "--audit", str(audit), *extra]
        command = wrap + (["--mode", mode] if mode else []) + ["--"] + command
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace", timeout=limit, cwd=folder)
        out, code = done.stdout + ("\n" + done.stderr if not done.stdout.strip() else ""), done.returncode
    except subprocess.TimeoutExpired:
        out, code = f"no answer in {limit} s", -1
    except FileNotFoundError as error:
        out, code = f"absent: {error.filename}", 127
    events = [json.loads(line) for line in audit.read_text().splitlines()] if audit.exists() else []
    return Result(out, code, events)


def program(name, *arguments):
    return [sys.executable, str(PROGRAMS), name, *arguments]


def row(section, name, without, with_, right):
    rows.append({"section": section, "row": name, "without": without, "with": with_, "right": "skipped" if right is None else "right" if right else "WRONG"})


def gpu_uuids():
    if not shutil.which("nvidia-smi"):
        return []
    out = subprocess.run(["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"], capture_output=True, text=True, env=BASE)
    return [line.strip() for line in out.stdout.splitlines() if line.startswith("GPU-")]


# --- 1. The reading of CUDA_VISIBLE_DEVICES

def values(uuid):
    u = uuid
    facts = ["", "-1", "NoDevFiles", "all", "none", "void", "0", "00", "+0", "-0", " 0", "0 ", "\t0", "0\n", "0x0", "0x1", "0gpu", "0.5", "0;", "0;1", "0-1",
             "0,", "0,,", "0,one", "0,-1", "0,1", ",0", ",", "1,0", "-1,0", "one,0", '"0"', "'0'", "[0]", "0,0", f"{u},{u}", f"{u[:12]},{u}", "4294967296",
             "18446744073709551616", u, u[:5], u[:8], u[:12], "GPU-", "GPU-" + u[4:].upper(), "gpu" + u[3:], u[4:], " " + u, u + " ", u + "0",
             f"{u},0", f"0,{u}", f"{u},GPU-ffffffff", f"GPU-ffffffff,{u}", "MIG-" + u[4:], u[:12] + " ", u[:12] + "x", u[:13], u[:12] + u[13:15], u[:12] + "-" + u[13:15],
             "GPU--", "-4294967296", "2147483648", "-2147483648", "9223372036854775807", "-9223372036854775809", "+ 0", "- 0", "\v0", "\f0", "\r0", "\u00a00", "0\x01", "GPU-" + u[4:12].upper(),
             # Found here first: dashes do not count, MIG- and GPU- are read alike, numbers are read as by strtoul.
             "9223372036854775808", "-9223372036854775808", "-18446744073709551616", "18446744073709551615", "-18446744073709551615", "-1x", "12884901888",
             "GPU-" + u[4:].replace("-", ""), "GPU-" + u[4:].replace("-", "") + "0", "GPU-" + u[4:].replace("-", "") + "x", "GPU---", "GPU-" + "-".join(u[4:12]),
             "GPU--" + u[4:], "GPU-" + u[4:6] + "-" + u[6:12], "GPU-" + "-" * 40, "GPU-" + "-" * 40 + u[4:8], u[:13] + "-", u[:-1], u[:-1] + "-", u + "-", "GPU-" + u[4:].replace("-", "--"),
             "MIG-", "MIG--", "MIG-" + u[4:8], "MIG-" + u[4:] + ",0", "MIG-" + u[4:] + "," + u, u + ",MIG-" + u[4:], "MIG-" + u, "MIG-" + u + "/0/0", "MIG-ffffffff", "mig-" + u[4:],
             "GPU-ffffffff,0", "GPU--,0", "MIG-" + u[4:] + "x", "GPU-MIG-" + u[4:]]
    chance = random.Random(20261201)
    parts = ["0", "1", "-1", "+0", " 0", "0x", "", "one", u, u[:6], u[:13], u + "z", "GPU-f", "GPU-", "4294967296", "00", "0;", u.upper(), "MIG-1", "gpu-1", u[:12] + ";"]
    return facts + [",".join(chance.choice(parts) for _ in range(chance.randint(1, 4))) for _ in range(200)]


def read_by(environment, texts):
    """What a driver makes of each value: cuInit's result and the visible GPUs' first digits."""
    folder = pathlib.Path(tempfile.mkdtemp(dir=WORK))

    def part(k):
        file = folder / str(k)
        file.write_bytes(b"".join(t.encode() + b"\0" for t in texts[k::8]))
        done = subprocess.run([str(CALLERS / "reader"), str(file)], env=BASE | environment, capture_output=True, text=True, timeout=LIMIT * 2)
        return done.stdout.splitlines()

    parts = list(concurrent.futures.ThreadPoolExecutor(8).map(part, range(8)))
    return [parts[k % 8][k // 8] if k // 8 < len(parts[k % 8]) else "(nothing)" for k in range(len(texts))]


def policy_reading(text):
    """The command's reading of a value, from the machine's inventory."""
    out = subprocess.run([str(RELEASE / "cuvisor"), "explain", "--json", "--", "true"], env=BASE | {"CUDA_VISIBLE_DEVICES": text}, capture_output=True, text=True)
    told = json.loads(out.stdout)
    if told["result"] is None:
        return None
    return " ".join([str(told["result"])] + [s["uuid"][4:12] for s in told["sees"]])


def section_reading(uuids):
    texts = [t for t in values(uuids[0]) if "\0" not in t]
    fake = WORK / "fake"
    fake.mkdir()
    shutil.copy(RELEASE / "libfake_cuda.so", fake / "libcuda.so.1")
    real = read_by({}, texts)
    faked = read_by({"LD_LIBRARY_PATH": str(fake), "FAKE_CUDA_UUIDS": ",".join(uuids)}, texts)
    own = list(concurrent.futures.ThreadPoolExecutor(8).map(policy_reading, texts))
    wrong = 0
    for text, r, f, p in zip(texts, real, faked, own):
        if r != f or (p is not None and p != r):
            wrong += 1
            row("reading", repr(text), f"real: {r}", f"fake: {f}, policy: {p}", False)
    row("reading", f"{len(texts)} values", f"{len(texts)} by the real driver", f"{len(texts) - wrong} alike by cuvisor-policy and the fake driver", wrong == 0)
    if all(p is None for p in own):
        row("reading", "inventory", "/proc/driver/nvidia/gpus", "not there: the policy's reading was not compared", None)


# --- 2. Routes

def section_routes(uuids):
    nvcc = shutil.which("nvcc")
    routes = {name: program(name) for name in ("ctypes_driver", "torch_matmul", "jax_matmul", "cupy_matmul", "numba_add", "triton_add", "bindings", "onnxruntime_relu")}
    for kind in ("static", "shared"):
        binary = WORK / f"runtime_{kind}"
        if nvcc:
            subprocess.run([nvcc, "-O1", "-cudart", kind, "-o", str(binary), str(ROOT / "tests" / "gpu" / "runtime.cu")], capture_output=True, env=BASE)
        routes[f"cudart {kind}"] = [str(binary)] if binary.exists() else ["nvcc-is-not-here"]
    steps = ["init", "count", "get:0", "retain:0"]
    for route in ("linked", "handle", "global", "whole", "v1", "v2", "v1v1", "v2v2", "dlsym"):
        routes[f"prog {route}"] = [str(CALLERS / ("prog_linked" if route == "linked" else "prog")), route, *steps]

    def one(item):
        name, command = item
        return name, run(command), run(command, "0"), run(command, "none"), run(command, "0", "audit")

    for name, bare, allowed, denied, audited in pool.map(one, routes.items()):
        if bare.line().startswith("absent") or "not-here" in bare.out:
            row("routes", name, "absent", "", None)
            continue
        events = sorted({e["event"] for e in allowed.events})
        init = next((e for e in allowed.events if e["event"] == "init" and e["result"] == 0), None)
        named = init is not None and init["devices"][0]["uuid"] == uuids[0]
        if not name.startswith("prog") and not bare.line().startswith("ok"):
            row("routes", f"{name}, GPU 0", bare.line(), "it does not run here without Cuvisor either", None)
        else:
            row("routes", f"{name}, GPU 0", bare.line(), f"{allowed.line()} [{' '.join(events)}] by {init['caller'] if init else '?'}",
                allowed.out == bare.out and allowed.code == bare.code and named and {"init", "context"} <= set(events))
        bad = denied.line().startswith("ok") or "103" in denied.line() or "integrity" in denied.out
        row("routes", f"{name}, none", bare.line(), denied.line()[:120], not bad and denied.has("init", result=100) and not denied.has("context", result=0))
        row("routes", f"{name}, audit", bare.line(), audited.line(), audited.out == bare.out and audited.has("context", outcome="audited"))


# --- 3. Traps

def section_traps():
    hidden = ("trap_before", "trap_after_import", "trap_after_count", "trap_after_available", "trap_after_tensor")
    shown = ("trap_shown_before", "trap_deleted", "trap_hidden_then_shown")

    def one(name):
        bare = run(program(name), env={"CUDA_VISIBLE_DEVICES": ""} if name in shown else {})
        return name, bare, run(program(name), "none"), run(program(name), "0")

    for name, bare, none, zero in pool.map(one, hidden + shown):
        if bare.line().startswith("absent"):
            row("traps", name, "absent", "", None)
            continue
        row("traps", f"{name}, none", bare.line(), none.line(), "driver 0, tensor fails" in none.line())
        # PyTorch counts by NVML and the variable in Python, so its count may differ; the driver and the tensor are the policy's.
        row("traps", f"{name}, GPU 0", bare.line(), zero.line(), "driver 1" in zero.line())


    # A04: the framework's count by NVML and the driver's agree, whichever way PyTorch counts.
    for nvml in ("0", "1"):
        held = run(program("untouched"), "0", env={"CUDA_VISIBLE_DEVICES": "0,0", "PYTORCH_NVML_BASED_CUDA_CHECK": nvml})
        bare = run(program("untouched"), env={"CUDA_VISIBLE_DEVICES": "0,0", "PYTORCH_NVML_BASED_CUDA_CHECK": nvml})
        row("traps", f"A04, PYTORCH_NVML_BASED_CUDA_CHECK={nvml}", bare.line(), held.line(), held.line() == "count 1, driver 1, tensor works")


# The guide's programs, with PyTorch where the stand-in stood.
def section_guide(uuids):
    right, variable = ("1", "1") if len(uuids) > 1 else ("none", "")
    wanted = uuids[1][:12] if len(uuids) > 1 else "no GPU"
    environment = {"TRAP_FRAMEWORK": "torch", "TRAP_RIGHT": variable, "TRAP_OTHER": "0", "HOME": str(WORK)}

    def one(line):
        name, kind, text = line.split("\t")
        command = [sys.executable, str(ROOT / "tests" / "traps" / f"{name}.py")]
        shell = {"CUDA_VISIBLE_DEVICES": variable} if kind == "shell" else {}
        return name, text, run(command, env=environment | shell), run(command, right, env=environment | shell)

    for name, text, bare, held in pool.map(one, (ROOT / "tests" / "traps" / "rows.tsv").read_text().splitlines()):
        if "absent" in bare.out:
            row("guide", text, bare.line(), "", None)
        elif name == "beyond":
            row("guide", text, bare.line(), held.line(), held.line() == bare.line())
        else:
            row("guide", text, bare.line(), held.line(), held.line() == wanted)


# --- The trace, through a real framework's import

def section_trace():
    command = [sys.executable, "-c", "import torch\ntorch.cuda.is_available()\ntorch.ones(1, device='cuda')"]
    out = subprocess.run([str(RELEASE / "cuvisor"), "run", "--trace", "--", *command], env=BASE, capture_output=True, text=True, timeout=LIMIT)
    lines = [line for line in out.stderr.splitlines() if " cuInit -> 0" in line]
    told = lines[0].split(" s ", 1)[-1] if lines else out.stderr.strip()[-200:]
    row("trace", "PyTorch's is_available()", "", told, "from torch/cuda/__init__.py" in told and "from <string>:2" in told)
    contexts = [line for line in out.stderr.splitlines() if "cuDevicePrimaryCtxRetain GPU 0" in line and "from <string>:3" in line]
    row("trace", "PyTorch's first tensor", "", contexts[0].split(" s ", 1)[-1] if contexts else "(no line)", bool(contexts))
    for script, code in (("import torch", 0), ("import torch; torch.cuda.is_available()", 3)):
        out = subprocess.run([str(RELEASE / "cuvisor"), "run", "--expect-no-cuda", "--", sys.executable, "-c", script], env=BASE, capture_output=True, text=True, timeout=LIMIT)
        row("trace", f"--expect-no-cuda: {script}", "", f"exit {out.returncode} {out.stderr.strip()[:160]}", out.returncode == code)


# --- doctor

def section_doctor(uuids):
    def ask(env):
        out = subprocess.run([str(RELEASE / "cuvisor"), "doctor", "--json"], env=BASE | env, capture_output=True, text=True, timeout=LIMIT).stdout
        return json.loads(out.replace(f"{ROOT}/", ""))

    told = {one["check"]: one for one in ask({"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})}
    for check in ("kernel driver", "GPUs", "nodes", "driver", "copies", "cuInit", "lists", "library", "kernel seal"):
        one = told.get(check, {"level": "failure", "cause": "(not told)"})
        # A machine may rightly have several copies of libcuda; that is for its reader to judge.
        row("doctor", check, "", f"{one['level']}: {one['cause']}", one["level"] == "ok" or (check == "copies" and one["level"] == "warning"))
    hidden = {one["check"]: one for one in ask({"CUDA_VISIBLE_DEVICES": ""})}
    row("doctor", "CVD empty", "", f"{hidden['cuInit']['cause']}", hidden["cuInit"]["cause"] == "100 CUDA_ERROR_NO_DEVICE")


# --- 4. Life of a process

def section_life():
    names = ("spawn", "forkserver", "fork_before", "fork_after", "loader", "threads", "compiled", "graphs", "nccl", "torchrun", "accelerate", "execed", "empty_environment", "ipc", "killed")

    def one(name):
        return name, run(program(name)), run(program(name), "0")

    for name, bare, held in pool.map(one, names):
        if bare.line().startswith("absent"):
            row("life", name, "absent", "", None)
            continue
        processes = len({(e["pid"], e["start_time"]) for e in held.events if e["event"] == "init"})
        row("life", name, bare.line(), f"{held.line()} ({processes} processes logged)", held.line() == bare.line() and not bare.line().startswith("failed"))


# --- 5. Other tools

def section_tools():
    binary = WORK / "runtime_static"
    if not binary.exists():
        return row("tools", "all", "absent: nvcc", "", None)
    tools = {
        "compute-sanitizer": (["compute-sanitizer", "--tool", "memcheck", str(binary)], "ERROR SUMMARY: 0 errors"),
        "ncu": (["ncu", "--clock-control", "none", str(binary)], "add(float *)"),
        "cuda-gdb": (["cuda-gdb", "-batch", "-ex", "run", "-ex", "bt", str(binary)], "ok 512.0"),
    }
    for name, (command, sign) in tools.items():
        bare, held = run(command), run(command, "0")
        if bare.line().startswith("absent"):
            row("tools", name, "absent", "", None)
            continue
        same = (sign in bare.out) == (sign in held.out)
        tell = lambda r: f"{sign!r} {'shown' if sign in r.out else 'not shown'}, exit {r.code}"
        row("tools", name, tell(bare), tell(held), same and bare.code == held.code)
    held = run(["sh", "-c", "echo $CUDA_INJECTION64_PATH"], "0", env={"CUDA_INJECTION64_PATH": "/x"})
    row("tools", "CUDA_INJECTION64_PATH", "/x", held.line(), held.line() == "/x")


# --- 6. nvidia-smi

def section_smi():
    mask = lambda text: re.sub(r"\d+W|\d+%|\d+C|\d+MiB|P\d|^\w{3} \w{3} .*$", "#", text, flags=re.M)
    for command in (["nvidia-smi", "-L"], ["nvidia-smi"], ["nvidia-smi", "--query-gpu=index,uuid,pci.bus_id,driver_version", "--format=csv"]):
        bare, held = run(command), run(command, "none")
        row("nvidia-smi", " ".join(command), f"{len(bare.out)} bytes", f"{len(held.out)} bytes, {len(held.events)} events", mask(bare.out) == mask(held.out) and not held.events)


# --- The kernel seal

def section_seal():
    torch = program("torch_matmul")
    smi = ["nvidia-smi", "-L"]
    bare_torch, bare_smi = run(torch), run(smi)
    sealed = lambda command, devices: run(command, devices, extra=["--seal"])
    none_torch, none_smi, zero_torch = sealed(torch, "none"), sealed(smi, "none"), sealed(torch, "0")
    level = next((e.get("seal") for e in none_torch.events if e["event"] == "init"), None)
    row("seal", "PyTorch, sealed to nothing", bare_torch.line(), f"{none_torch.line()} {level}", none_torch.line() == "no GPU" and bool(level) and level["level"] == "ioctl")
    row("seal", "nvidia-smi -L, sealed to nothing", bare_smi.line()[:40], none_smi.line(), "No devices" in none_smi.out)
    row("seal", "PyTorch, sealed to GPU 0", bare_torch.line(), zero_torch.line(), zero_torch.line() == bare_torch.line())
    escape = sealed(["env", "-i", "CUDA_VISIBLE_DEVICES=0", f"PATH={BASE['PATH']}", f"LD_LIBRARY_PATH={BASE.get('LD_LIBRARY_PATH', '')}", *program("ctypes_driver")], "none")
    row("seal", "env -i below a seal to nothing", run(program("ctypes_driver")).line(), escape.line(), escape.line() == "no GPU: 100")
    moves = [sys.executable, "-c", "import os; os.mkdir('a'); os.mkdir('b'); open('a/x', 'w'); os.link('a/x', 'b/y'); os.rename('a/x', 'b/x'); print(*sorted(os.listdir('b')))"]
    moved = sealed(moves, "none")
    row("seal", "a file linked and renamed into another folder", run(moves).line(), moved.line(), moved.line() == "x y")
    # As a batch job has it, which takes the environment along and not the seal.
    variable = sealed(["sh", "-c", "echo $CUVISOR_SEALED"], "none").line()
    carried = run(smi, "none", env={"CUVISOR_SEALED": variable}, extra=["--seal"])
    row("seal", "nvidia-smi -L, sealed to nothing, with the variable of another seal", variable[:20], carried.line(), variable.startswith("/dev/nvidia") and "No devices" in carried.out)
    # As another user: the files that it needs are copied to where everybody may read them.
    place = pathlib.Path(tempfile.mkdtemp())
    place.chmod(0o755)
    for file in (RELEASE / "libcuvisor.so", RELEASE / "cuvisor", CALLERS / "prog"):
        shutil.copy(file, place)
    drop = ["setpriv", "--reuid", "1000", "--clear-groups"] if os.getuid() == 0 else []
    for devices, wanted in (("none", "init 100"), ("0", "init 0")):
        out = subprocess.run([*drop, str(place / "cuvisor"), "run", "--devices", devices, "--seal=require", str(place / "prog"), "handle", "init"], env=BASE, cwd="/", capture_output=True, text=True)
        row("seal", f"as another user, sealed to {devices}", wanted, (out.stdout + out.stderr).strip(), out.stdout.strip() == wanted)
    shutil.rmtree(place)


# --- ps: opened and used, told apart by descriptors and by NVML

def section_ps():
    hold = "import ctypes, sys, time\nd = ctypes.CDLL('libcuda.so.1')\nd.cuInit(0)\nc = ctypes.c_void_p()\n" \
           "if sys.argv[1] == 'used':\n    d.cuDevicePrimaryCtxRetain(ctypes.byref(c), 0)\nprint('ready', flush=True)\ntime.sleep(60)\n"
    held = {}
    for kind in ("opened", "used"):
        held[kind] = subprocess.Popen([sys.executable, "-c", hold, kind], env=BASE, stdout=subprocess.PIPE, text=True)
        held[kind].stdout.readline()
    out = subprocess.run([str(RELEASE / "cuvisor"), "ps", "--json"], env=BASE, capture_output=True, text=True)
    told = {one["pid"]: one for one in json.loads(out.stdout)}
    for kind, process in held.items():
        one = told.get(process.pid, {"gpus": []})
        nodes = sum(os.readlink(f"/proc/{process.pid}/fd/{fd}") == "/dev/nvidia0" for fd in os.listdir(f"/proc/{process.pid}/fd"))
        row("ps", f"a process that {'made a context' if kind == 'used' else 'called cuInit'}", f"{nodes} descriptors of its node", f"{[g['used'] for g in one['gpus']]}", [g["used"] for g in one["gpus"]] == [kind == "used"])
        process.kill()
        process.wait()


# --- 7. Cost

def section_cost():
    names = ("import torch", "first tensor", "10,000 launches", "200 training steps")
    bare, held = [], []
    run(program("cost"))
    for _ in range(4):
        for kept, devices in ((bare, None), (held, "0")):
            line = run(program("cost"), devices).line()
            if line.startswith("ok "):
                kept.append([float(x) for x in line[3:].split()])
    if not bare or not held:
        return row("cost", "all", "absent", "", None)
    for k, name in enumerate(names):
        b, h = sorted(x[k] for x in bare), sorted(x[k] for x in held)
        show = lambda x: f"{statistics.median(x):.3f} s ({x[0]:.3f} to {x[-1]:.3f})"
        row("cost", name, show(b), show(h), h[0] <= b[-1] * 1.05)


# --- 8. The guard

def section_guard():
    for then in ("torch_matmul", "jax_matmul", "cupy_matmul", "numba_add", "ctypes_driver"):
        command = program("behind", str(CALLERS / "libdeep.so"), then)
        bare, held = run(command), run(command, "none")
        if "absent" in bare.line():
            row("guard", then, "absent", "", None)
            continue
        right = "deep cuInit 0" in held.line() and "then ok" not in held.line() and "103" not in held.line() and held.has("denied")
        row("guard", f"deep-bound cuInit, then {then}", bare.line()[:100], held.line()[:160], right)


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    uuids = gpu_uuids()
    if not uuids:
        sys.exit("SKIPPED gpu-check: nvidia-smi shows no GPU here")
    start = time.time()
    about = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True, env=BASE).stdout.strip().splitlines()[0]
    sections = [lambda: section_reading(uuids), lambda: section_routes(uuids), section_traps, lambda: section_guide(uuids), section_trace, lambda: section_doctor(uuids), section_life, section_tools, section_smi, section_seal, section_ps, section_guard, lambda: gpu_several.section(sys.modules[__name__], uuids), section_cost]
    only = os.environ.get("GPU_CHECK_SECTIONS")
    names = ["reading", "routes", "traps", "guide", "trace", "doctor", "life", "tools", "smi", "seal", "ps", "guard", "several", "cost"]
    for name, section in zip(names, sections):
        if only and name not in only.split(","):
            continue
        began = time.time()
        try:
            section()
        except Exception as error:  # one section's fault must not hide the others' rows
            row(name, "the section itself", "", f"{type(error).__name__}: {error}", False)
        print(f"{name}: {time.time() - began:.0f} s", flush=True)
    head = f"{len(uuids)} x {about}, {time.strftime('%Y-%m-%d')}, {time.time() - start:.0f} s"
    clean = lambda text: str(text).replace("|", "\\|").replace("\n", " ")
    lines = ["# Checked on a real GPU", "", head, "", "| section | row | without Cuvisor | with Cuvisor | |", "| --- | --- | --- | --- | --- |"]
    lines += [f"| {r['section']} | {clean(r['row'])} | {clean(r['without'])} | {clean(r['with'])} | {r['right']} |" for r in rows]
    (out / "table.md").write_text("\n".join(lines) + "\n")
    (out / "table.json").write_text(json.dumps({"machine": head, "rows": rows}, indent=1) + "\n")
    shutil.rmtree(WORK, ignore_errors=True)
    counts = {k: sum(r["right"] == k for r in rows) for k in ("right", "WRONG", "skipped")}
    for r in rows:
        if r["right"] != "right":
            print(f"{r['right']}: {r['section']}: {r['row']}: {r['without']} -> {r['with']}")
    print(f"{head}: {counts['right']} right, {counts['WRONG']} wrong, {counts['skipped']} skipped")
    sys.exit(1 if counts["WRONG"] else 0)


if __name__ == "__main__":
    main()
