"""Runs the programs of tests/traps without and with Cuvisor and prints what each saw, then the audit file.

Called by scripts/quickstart.sh, which builds what is needed."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
RELEASE = ROOT / "target" / "release"
# The notebook needs packages from PyPI, and "beyond" is no matter of which GPU is visible.
ROWS = [line.split("\t") for line in (ROOT / "tests" / "traps" / "rows.tsv").read_text().splitlines()]
TRAPS = [row for row in ROWS if row[0] not in ("notebook", "beyond")]


def real_gpus():
    """How many GPUs the real driver has, asked in a process of its own; 0 where there is none."""
    ask = (
        "import ctypes; d = ctypes.CDLL('libcuda.so.1'); n = ctypes.c_int(); "
        "print(0 if d.cuInit(0) or d.cuDeviceGetCount(ctypes.byref(n)) else n.value)"
    )
    environment = {k: v for k, v in os.environ.items() if k not in ("CUDA_VISIBLE_DEVICES", "LD_PRELOAD")}
    out = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, env=environment)
    return int(out.stdout or 0) if out.returncode == 0 else 0


def table(rows):
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    for at, row in enumerate(rows):
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
        if at == 0:
            print("  " + "  ".join("-" * width for width in widths))


def main():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="cuvisor-quickstart-"))
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "PYTHONDONTWRITEBYTECODE": "1"}
    gpus = real_gpus()
    if gpus:
        print(f"\nThe NVIDIA driver of this machine shows {gpus} GPU(s).")
        environment["LD_LIBRARY_PATH"] = os.environ.get("LD_LIBRARY_PATH", "")
    else:
        gpus = 4
        shutil.copy(RELEASE / "libfake_cuda.so", folder / "libcuda.so.1")
        environment |= {"LD_LIBRARY_PATH": str(folder), "FAKE_CUDA_GPUS": "4"}
        print("\nThere is no NVIDIA driver here: a driver without GPUs stands in, which shows 4.")
    # With one GPU, none is the right answer and the GPU the wrong one.
    right, other = ("1", "0") if gpus > 1 else ("none", "0")
    variable = "" if right == "none" else right
    environment |= {"TRAP_RIGHT": variable, "TRAP_OTHER": other}
    audit = folder / "audit.jsonl"
    rows = [("CUDA_VISIBLE_DEVICES is set", "without Cuvisor", f"cuvisor run --devices {right}")]
    wrong = 0
    for name, kind, text in TRAPS:
        shell = {"CUDA_VISIBLE_DEVICES": variable} if kind == "shell" else {}
        program = [sys.executable, str(ROOT / "tests" / "traps" / f"{name}.py")]
        run = [str(RELEASE / "cuvisor"), "run", "--devices", right, "--audit", str(audit), "--", *program]
        outs = [subprocess.run(c, env=environment | shell, capture_output=True, text=True) for c in (program, run)]
        for out in outs:
            if out.returncode:
                sys.exit(f"{name} failed: {out.stderr}")
        rows.append((text, *(out.stdout.strip() for out in outs)))
        wrong += len({row[2] for row in rows[1:]}) != 1
    print(f"Every program below is meant to use {'no GPU' if right == 'none' else 'GPU ' + right} and nothing else.\n")
    table(rows)

    print(f"\nWhat was written to {audit} (each cuInit, and each change that came too late):\n")
    rows = [("time", "event", "outcome", "pid", "asked for", "got", "result", "GPU")]
    for line in audit.read_text().splitlines():
        event = json.loads(line)
        if event["event"] not in ("init", "late_change"):
            continue
        devices = event.get("devices") or [event["device"]] if event.get("device") else event.get("devices", [])
        show = lambda key: "" if key not in event else "(unset)" if event[key] is None else str(event[key]) or '""'
        shown = " ".join((d.get("uuid") or "?")[:12] for d in devices if d)
        rows.append((event["time"][11:19], event["event"], event["outcome"], str(event["pid"]), show("request"), show("effective"), show("result"), shown))
    table(rows)
    shutil.rmtree(folder)
    if wrong:
        sys.exit("with Cuvisor, not every program saw the same: this is a bug")
    print("\nNext: target/release/cuvisor run --devices 0 -- python3 your_program.py")


if __name__ == "__main__":
    main()
