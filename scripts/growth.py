"""How the cost grows: draws scripts/growth.svg, a panel each, and prints the slopes. Needs matplotlib (PyPI).

Called by scripts/bench.sh --growth after the build."""
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from bench import BENCH, CALLERS, LIBRARY, RELEASE

WORK = pathlib.Path(tempfile.mkdtemp(prefix="cuvisor-growth-"))


def driver(**more):
    folder = WORK / "driver"
    folder.mkdir(exist_ok=True)
    if not (folder / "libcuda.so.1").exists():
        (folder / "libcuda.so.1").write_bytes((RELEASE / "libfake_cuda.so").read_bytes())
    return {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(folder)} | {k: str(v) for k, v in more.items()}


def starts(variants, count=300):
    """Microseconds of a start beside the bare one, for each list of variables."""
    arguments = ["PATH=/usr/bin:/bin", "CUDA_VISIBLE_DEVICES=0"]
    for variables in variants:
        arguments += ["--", "PATH=/usr/bin:/bin", "CUDA_VISIBLE_DEVICES=0", *variables]
    times = [float(t) for t in subprocess.run([BENCH, "start", str(count), *arguments], capture_output=True, text=True, check=True).stdout.split()]
    return [t - times[0] for t in times[1:]]


def policy(rules, comment=0):
    path = WORK / f"policy-{rules}-{comment}.toml"
    body = "".join(f'[[rule]]\nname = "r{k}"\nenv = ["CUVISOR_BENCH_JOB=j{k}"]\ndevices = [{k % 8}]\n' for k in range(rules))
    path.write_text(f"[default]\ndevices = [1]\n{body}" + "# " + "x" * comment + "\n")
    return [f"LD_PRELOAD={LIBRARY}", f"CUVISOR_POLICY={path}", f"CUVISOR_BENCH_JOB=j{rules - 1}"]


def rules():
    sizes = [1, 10, 100, 1000, 3000, 10000]
    return "rules in the policy", "us of a start", sizes, starts([policy(n) for n in sizes])


def file_size():
    sizes = [1 << k for k in range(10, 22, 2)]
    return "bytes of the policy (one rule, a comment)", "us of a start", sizes, starts([policy(1, n) for n in sizes])


def gpus():
    """cuInit and cuDeviceGet of each GPU, with an index policy that has the inventory read."""
    sizes, times = [1, 2, 4, 8, 16, 32, 64], []
    for n in sizes:
        root = WORK / f"root-{n}"
        for k in range(n):
            folder = root / f"proc/driver/nvidia/gpus/0000:{k + 16:02x}:00.0"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "information").write_text(f"GPU UUID: \t GPU-{k:08x}-0000-4000-8000-{k:012x}\nBus Location: \t 0000:{k + 16:02x}:00.0\nDevice Minor: \t {k}\n")
            (root / "dev").mkdir(exist_ok=True)
            (root / f"dev/nvidia{k}").touch()
        held = dict(LD_PRELOAD=LIBRARY, CUVISOR_DEVICES=",".join(map(str, range(n))), CUVISOR_PROC_ROOT=root)
        command = [str(CALLERS / "prog"), "handle", "init", *(f"get:{k}" for k in range(n))]
        once = lambda more: timed(command, driver(FAKE_CUDA_GPUS=n, **more))
        bare, with_ = (min(column) for column in zip(*((once({}), once(held)) for _ in range(100))))
        times.append((with_ - bare) * 1e6)
    return "GPUs", "us more for cuInit and a cuDeviceGet each", sizes, times


def timed(command, environment):
    before = time.perf_counter()
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - before


def lookups():
    sizes, times = [1, 10, 100, 1000, 10000, 100000], []
    for n in sizes:
        each = lambda more: min(float(subprocess.run([BENCH, "dlsym", str(n)], env=driver(**more), capture_output=True, text=True, check=True).stdout) for _ in range(5))
        times.append(each(dict(LD_PRELOAD=LIBRARY, CUVISOR_DEVICES="0")) * n / 1000)
    return "symbols looked up", "us in all, bare look-up included", sizes, times


def threads():
    sizes, times = [1, 2, 4, 8, 16, 32, 64], []
    for n in sizes:
        each = lambda more: min(float(subprocess.run([BENCH, "get", "200000", str(n)], env=driver(**more), capture_output=True, text=True, check=True).stdout) for _ in range(3))
        times.append(each(dict(LD_PRELOAD=LIBRARY, CUVISOR_DEVICES="0")) / each({}))
    return "threads in cuDeviceGet", "times the bare call", sizes, times


def report():
    """Through a pipe from the program that makes the lines: the largest log has 57 GB."""
    sizes, times = [10**k for k in range(9)], []
    for lines in sizes:
        def once():
            before = time.perf_counter()
            with subprocess.Popen([CALLERS / "log", str(lines)], stdout=subprocess.PIPE) as log:
                subprocess.run([RELEASE / "cuvisor", "report", "--csv", "-"], stdin=log.stdout, stdout=subprocess.DEVNULL, check=True)
            return time.perf_counter() - before

        times.append(min(once() for _ in range(5 if lines < 10**7 else 1)))
    return "lines of the log", "s of report", sizes, times


def check():
    """The command's own reading of a policy, with its warnings."""
    sizes = [1, 10, 100, 1000, 10000]
    command = lambda n: [str(RELEASE / "cuvisor"), "check", policy(n)[1].partition("=")[2]]
    return "rules in the policy", "s of cuvisor check", sizes, [min(timed(command(n), os.environ) for _ in range(10)) for n in sizes]


def slope(x, y):
    """The cost of one more, between the two largest."""
    return (y[-1] - y[-2]) / (x[-1] - x[-2])


def main():
    figure, axes = plt.subplots(2, 4, figsize=(17, 7), constrained_layout=True)
    matplotlib.rcParams["svg.fonttype"] = "none"
    matplotlib.rcParams["svg.hashsalt"] = "cuvisor"
    print("| what grows | from | to | cost at both | one more costs |\n| --- | --- | --- | --- | --- |")
    for place, measure in zip(axes.flat, (rules, file_size, gpus, lookups, threads, check, report)):
        what, unit, x, y = measure()
        each = slope(x, y)
        place.plot(x, y, marker="o")
        place.set(xscale="log", yscale="log", xlabel=what, ylabel=unit, title=f"one more: {each:.3g}")
        place.grid(True, which="major", alpha=0.3)
        print(f"| {what} | {x[0]:,} | {x[-1]:,} | {y[0]:.3g} and {y[-1]:.3g} {unit} | {each:.3g} |", flush=True)
    axes.flat[-1].remove()
    figure.savefig(pathlib.Path(__file__).with_name("growth.svg"), metadata={"Date": None})
    subprocess.run(["rm", "-rf", str(WORK)])


if __name__ == "__main__":
    main()
