"""The rows of scripts/gpu-check.sh that one GPU cannot show. NVLink multicast stays off: not every machine lends it."""
import json
import os
import subprocess
import sys

PROGRAMS = """
import os, sys

def where(ordinal=0):
    import torch
    return "GPU-" + str(torch.cuda.get_device_properties(ordinal).uuid).removeprefix("GPU-")

def pair():
    import torch, torch.distributed as dist
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    x = torch.full((1024,), float(rank + 1), device="cuda")
    dist.all_reduce(x)
    dist.destroy_process_group()
    if rank == 0:
        print("ok", x.mean().item(), flush=True)

def peer():
    import torch
    a = torch.ones(1 << 20, device="cuda:0")
    b = a.to("cuda:1")
    print("ok", torch.cuda.can_device_access_peer(0, 1), torch.cuda.device_count(), b.sum().item())

def child(queue, done):
    x = queue.get()
    x += 1
    done.put(x.device.index)

def ipc():
    import torch, torch.multiprocessing as mp
    context = mp.get_context("spawn")
    queue, done = context.SimpleQueue(), context.SimpleQueue()
    process = context.Process(target=child, args=(queue, done))
    process.start()
    x = torch.ones(4, device="cuda:1")
    queue.put(x)
    index = done.get()
    process.join()
    torch.cuda.synchronize()
    print("ok", index, x.sum().item())

def behind():
    # A deep-bound library initialises the driver past the hooks: every GPU is visible. A context is refused on the one
    # outside the policy with 46; is the runtime's other GPU usable after that?
    import ctypes
    ctypes.CDLL(sys.argv[2], mode=os.RTLD_DEEPBIND | os.RTLD_NOW).deep_init()
    import torch
    told = []
    for ordinal in (0, 1):
        try:
            told.append(f"cuda:{ordinal} {torch.ones(8, device=f'cuda:{ordinal}').sum().item()}")
        except RuntimeError as error:
            told.append(f"cuda:{ordinal} refused ({str(error).splitlines()[0][:60]})")
    print("; ".join(told))

def train():
    import torch
    model = torch.nn.Linear(256, 256, device="cuda")
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(50):
        optimiser.zero_grad()
        model(torch.ones(64, 256, device="cuda")).square().mean().backward()
        optimiser.step()
    print("ok", where())

def count():
    import torch
    print(torch.cuda.device_count(), " ".join(where(k) for k in range(torch.cuda.device_count())))

if __name__ == "__main__":
    globals()[sys.argv[1]]()
"""


def section(check, uuids):
    """Adds the rows; `check` is the module of gpu_check.py."""
    row, run = check.row, check.run
    if len(uuids) < 2:
        return row("several", "all", "this machine has one GPU", "", None)
    file = check.WORK / "several.py"
    file.write_text(PROGRAMS)
    program = lambda name, *more: [sys.executable, str(file), name, *more]
    prog = lambda *steps: [str(check.CALLERS / "prog"), "handle", *steps]
    pci = subprocess.run(["nvidia-smi", "--query-gpu=pci.bus_id", "--format=csv,noheader"], capture_output=True, text=True, env=check.BASE).stdout.split()
    short = [uuid[:12] for uuid in uuids]

    # Which device each way of naming it gives, with the real driver's codes.
    lists = {
        "1": (0, short[1:2]), "1,0": (0, [short[1], short[0]]), uuids[1]: (0, short[1:2]), f"{uuids[1]},{uuids[0]}": (0, [short[1], short[0]]),
        uuids[1][:16]: (0, short[1:2]), "0,0": (101, []), f"0,{len(uuids)}": (0, short[:1]), str(len(uuids)): (100, []), f"1,{uuids[0]}": (0, short[1:2]),
        f"{uuids[0]},1": (0, short[:1]), f"{uuids[1]},{uuids[1][:16]}": (101, []),
    }
    for text, (code, seen) in lists.items():
        bare = run(prog("init", *(f"get:{k}" for k in range(len(seen)))), env={"CUDA_VISIBLE_DEVICES": text, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
        told = bare.out.split()
        right = told[:2] == ["init", str(code)] and all(one in bare.out for one in seen)
        row("several", f"CUDA_VISIBLE_DEVICES={text}", " ".join(told), f"the stand-in: {code} {' '.join(seen)}", right)
    for text in ("1", "1,0", uuids[1], uuids[1][:16]):
        held = run(prog("init", "get:0"), text, env={"CUDA_VISIBLE_DEVICES": "0"})
        event = next((e for e in held.events if e["event"] == "init"), {})
        shown = [d["uuid"] for d in event.get("devices", [])]
        row("several", f"policy {text}", "", f"{held.line()} {[u[:12] for u in shown]}", shown[:1] == uuids[1:2])
    policy = check.WORK / "pci.toml"
    policy.write_text(f'[default]\ndevices = ["{pci[1]}"]\nemit = "uuid"\n')
    held = run([str(check.RELEASE / "cuvisor"), "run", "--policy", str(policy), *prog("init", "get:0")])
    row("several", f"policy by PCI bus id {pci[1]}", "", held.line(), short[1] in held.out)
    for order in ("PCI_BUS_ID", "FASTEST_FIRST"):
        held = run(prog("init", "get:0"), "1", env={"CUDA_DEVICE_ORDER": order})
        row("several", f"policy 1, CUDA_DEVICE_ORDER={order}", "", held.line(), short[1] in held.out)

    # narrow: each worker its own, and a fifth that asks for what it may not have.
    policy = check.WORK / "narrow.toml"
    allowed = list(range(len(uuids) - 1)) or [0]
    policy.write_text(f'[default]\ndevices = {allowed}\nrequest = "narrow"\n')
    narrow = lambda wish: run([str(check.RELEASE / "cuvisor"), "run", "--policy", str(policy), *prog("init", "get:0")], env={"CUDA_VISIBLE_DEVICES": wish})
    for k in range(4):
        wish = allowed[k % len(allowed)]
        held = narrow(str(wish))
        row("several", f"narrow, worker {k} wants {wish}", "", held.line(), short[wish] in held.out)
    held = narrow(str(len(uuids) - 1))
    row("several", f"narrow, a fifth wants {len(uuids) - 1}", "", held.line(), held.out.startswith("init 100"))

    # Ranks, peers, IPC between an allowed pair.
    if not check.run([sys.executable, "-c", "import torch"]).code == 0:
        return row("several", "the rows with PyTorch", "absent: torch", "", None)
    launch = lambda name: [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(file), name]
    quiet = {"NCCL_NVLS_ENABLE": "0"}
    for devices in ("0,1", "1,0"):
        bare, held = run(launch("pair"), env=quiet), run(launch("pair"), devices, env=quiet)
        row("several", f"torchrun, two ranks, NCCL all-reduce, policy [{devices}]", bare.line(), held.line(), held.line() == "ok 1.5")
    for name in ("peer", "ipc"):
        bare, held = run(program(name), env={"CUDA_VISIBLE_DEVICES": "0,1"}), run(program(name), "0,1")
        row("several", name, bare.line(), held.line(), held.line() == bare.line() and held.line().startswith("ok"))

    # The guard and the seal.
    held = run(program("behind", str(check.CALLERS / "libdeep.so")), "1")
    row("several", "deep-bound cuInit, policy 1", "", held.line(), "cuda:0 refused" in held.line() and "cuda:1 8.0" in held.line())
    held = run(program("train"), "1", extra=["--seal"])
    level = next((e.get("seal", {}).get("level") for e in held.events if e["event"] == "init"), None)
    row("several", "sealed to GPU 1, training", "", f"{held.line()[:15]} {level}", held.line() == f"ok {uuids[1]}" and level == "ioctl")
    bare = run(program("count"))
    row("several", "while that is sealed, another sees", "", bare.line()[:60], bare.line().startswith(str(len(uuids))))

    # ps and report tell the GPUs apart.
    audit = check.WORK / "apart.jsonl"
    waiting = []
    for k in range(2):
        command = [str(check.RELEASE / "cuvisor"), "run", "--devices", str(k), "--audit", str(audit), *prog("init", "retain:0", "wait")]
        process = subprocess.Popen(command, env=check.BASE, stdout=subprocess.PIPE, text=True)
        while process.stdout.readline().strip() != "waiting":
            pass
        waiting.append(process)
    told = json.loads(subprocess.run([str(check.RELEASE / "cuvisor"), "ps", "--json"], env=check.BASE, capture_output=True, text=True).stdout)
    seen = {one["pid"]: [(gpu["index"], gpu["used"]) for gpu in one["gpus"]] for one in told}
    row("several", "ps tells two processes' GPUs apart", "", [seen.get(p.pid) for p in waiting], [seen.get(p.pid) for p in waiting] == [[(0, True)], [(1, True)]])
    for process in waiting:
        process.kill()
        process.wait()
    out = subprocess.run([str(check.RELEASE / "cuvisor"), "report", "--by", "gpu", "--csv", str(audit)], env=os.environ, capture_output=True, text=True).stdout
    row("several", "report tells the GPUs apart", "", [line[:12] for line in out.splitlines()[1:]], sorted(line[:12] for line in out.splitlines()[1:]) == sorted(short[:2]))
