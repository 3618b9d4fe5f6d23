"""The measurements of scripts/bench.sh; prints a Markdown table with the command for each row."""
import argparse
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

ROOT = pathlib.Path(__file__).resolve().parent.parent
RELEASE, CALLERS = ROOT / "target" / "release", ROOT / "target" / "callers"
WORK = pathlib.Path(tempfile.mkdtemp(prefix="cuvisor-bench-"))
LIBRARY, EMPTY, BENCH = RELEASE / "libcuvisor.so", CALLERS / "libempty.so", str(CALLERS / "bench")
STARTS = 1500


def policy(rules, name):
    """A policy of so many rules of which the last one matches."""
    path = WORK / name
    body = "".join(f'[[rule]]\nname = "r{k}"\nenv = ["CUVISOR_BENCH_JOB=j{k}"]\ndevices = [{k % 8}]\n' for k in range(rules))
    path.write_text(f'mode = "enforce"\n[audit]\nfile = "{WORK}/audit.jsonl"\n[default]\ndevices = [1]\n{body}')
    return str(path)


def machine():
    """A folder that stands for / on a machine with 4 GPUs."""
    root = WORK / "root"
    for k in range(4):
        folder = root / f"proc/driver/nvidia/gpus/0000:1{k}:00.0"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "information").write_text(f"Model: \t x\nGPU UUID: \t GPU-{str(k) * 8}-0000-4000-8000-00000000000{k}\nBus Location: \t 0000:1{k}:00.0\nDevice Minor: \t {k}\n")
        (root / "dev").mkdir(exist_ok=True)
        (root / f"dev/nvidia{k}").touch()
    return root


BARE = ["PATH=/usr/bin:/bin", "CUDA_VISIBLE_DEVICES=0"]


def preload(path):
    return [f"LD_PRELOAD={path}"]


def preloaded(path):
    return {"LD_PRELOAD": str(path)}


def under(rules):
    """The library and a policy of so many rules."""
    return preload(LIBRARY) + [f"CUVISOR_POLICY={policy(rules, f'p{rules}.toml')}", f"CUVISOR_BENCH_JOB=j{rules - 1}"]


def bench(*arguments, environment=None):
    return subprocess.run([BENCH, *arguments], env=environment, capture_output=True, text=True, check=True).stdout.split()


def environment_of(variables):
    return dict(variable.split("=", 1) for variable in variables)


def start_times(variants, environment=None):
    """Microseconds of a start with each of these variables; by a process with this environment."""
    arguments = []
    for variables in variants.values():
        arguments += BARE + variables + ["--"]
    return dict(zip(variants, map(float, bench("start", str(STARTS), *arguments[:-1], environment=environment))))


def start_rows(peers):
    variants = {"bare": [], "an empty C library": preload(EMPTY), "Cuvisor, no policy": preload(LIBRARY), "Cuvisor, 10 rules, the last matches": under(10),
                "Cuvisor, 1,000 rules, the last matches": under(1000), "Cuvisor, 10,000 rules, the last matches": under(10000)}

    def given(name, devices, seal):
        path = WORK / f"{name}.toml"
        path.write_text(f"[default]\ndevices = {devices}\nseal = {seal}\n")
        return preload(LIBRARY) + [f"CUVISOR_POLICY={path}", f"CUVISOR_PROC_ROOT={machine()}"]

    variants |= {"Cuvisor, 1 GPU of 4": given("open", "[1]", "false"), "Cuvisor, 1 GPU of 4, sealed": given("sealed", "[1]", "true")}
    sealed = variants["Cuvisor, 1 GPU of 4, sealed"]
    variants["a C library that seals and does nothing else"] = preload(CALLERS / "libseal_only.so")
    for peer in sorted(pathlib.Path(peers).glob("*.so")) if peers else []:
        variants[peer.name] = preload(peer.resolve())
    times = start_times(variants)
    empty = times["an empty C library"] - times["bare"]
    command = f"bench start {STARTS}"
    yield "start of /bin/true, bare", f"{times['bare']:.0f} us", "", command
    for name in list(variants)[1:]:
        extra = times[name] - times["bare"]
        yield f"start of /bin/true, {name}", f"+{extra:.0f} us", f"{extra / empty:.2f} x the empty library", command
    # By a sealed process, as the first of them that it starts.
    of_seal = environment_of(BARE + sealed)
    below = subprocess.run(["/usr/bin/env"], env=of_seal, capture_output=True, text=True, check=True).stdout
    inherited = sealed + [line for line in below.splitlines() if line.startswith("CUVISOR_SEALED=")]
    inside = start_times({"bare": [], "empty": preload(EMPTY), "sealed": inherited}, of_seal)
    extra, empty = inside["sealed"] - inside["bare"], inside["empty"] - inside["bare"]
    yield "start of /bin/true, Cuvisor, below a sealed process", f"+{extra:.0f} us", f"{extra / empty:.2f} x the empty library there", command
    entries = sum(1 for folder in ("/", "/dev") for entry in os.scandir(folder) if not entry.is_symlink() and not entry.is_file())
    alone = times["Cuvisor, 1 GPU of 4, sealed"] - times["Cuvisor, 1 GPU of 4"]
    least = times["a C library that seals and does nothing else"] - times["an empty C library"]
    yield f"the seal alone; {entries} entries of / and /dev need a rule", f"+{alone:.0f} us", f"+{least:.0f} us in the C library", command


def page_rows():
    """What a start is made of: the pages it touches, and instructions, which are the same in each run."""
    variants = {"an empty C library": preload(EMPTY), "Cuvisor, no policy": preload(LIBRARY), "Cuvisor, 10 rules": under(10), "Cuvisor, 1,000 rules": under(1000)}
    faults = lambda variables: int(bench("faults", *BARE, *variables)[0])
    bare = faults([])
    told = ", ".join(f"{name} +{faults(variables) - bare}" for name, variables in variants.items())
    yield "page faults of a start", f"{bare} bare", told, "bench faults"
    if shutil.which("valgrind") is None:
        return

    def instructions(variables):
        command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", "/bin/true"]
        environment = environment_of(BARE + variables)
        return int(re.search(r"Collected : (\d+)", subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stderr)[1])

    counts = {name: instructions(variables) for name, variables in variants.items()}
    bare = instructions([])
    told = ", ".join(f"{name} +{(count - bare) / 1000:,.0f} thousand" for name, count in counts.items())
    yield "instructions of a start", f"{bare / 1000:,.0f} thousand bare", told, "valgrind --tool=callgrind"
    yield "instructions for a rule of three lines", f"{(counts['Cuvisor, 1,000 rules'] - counts['Cuvisor, 10 rules']) / 990:,.0f}", "", "valgrind --tool=callgrind"


def driver_environment(**more):
    folder = WORK / "driver"
    folder.mkdir(exist_ok=True)
    shutil.copy(RELEASE / "libfake_cuda.so", folder / "libcuda.so.1")
    # The machine's own GPUs, if it has any, are not those of the stand-in driver.
    return {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(folder), "FAKE_CUDA_GPUS": "4", "CUVISOR_PROC_ROOT": str(machine())} | more


def call_rows():
    held = preloaded(LIBRARY) | {"CUVISOR_DEVICES": "1"}
    audit = WORK / "all.toml"
    audit.write_text(f'[audit]\nfile = "{WORK}/all.jsonl"\ncalls = "all"\n[default]\ndevices = [1]\n')
    rows = {
        "dlsym of a name that is not hooked": (["dlsym", "1000000"], {}, held, "ns"),
        "cuDeviceGet after the first (fake driver)": (["get", "10000000"], {}, held, "ns"),
        "cuDeviceGet from 8 threads at once, processor time": (["get", "2000000", "8"], {}, held, "ns"),
        "cuInit again, nothing logged": (["init", "20000"], {}, held, "us"),
        "cuInit again, an event each, file sink": (["init", "2000"], {}, preloaded(LIBRARY) | {"CUVISOR_POLICY": str(audit)}, "us"),
    }
    silent = 0.0
    for name, (arguments, before, after, unit) in rows.items():
        once = lambda more: float(subprocess.run([BENCH, *arguments], env=driver_environment(**more), capture_output=True, text=True, check=True).stdout)
        # By turns, and the best of each: what another guest of the machine takes can only be added.
        bare, with_ = map(min, zip(*((once(before), once(after)) for _ in range(7))))
        silent, beside = with_, f"; the event alone +{with_ - silent:.1f} us" if "event" in name else ""
        yield name, f"{bare:.1f} to {with_:.1f} {unit}", f"{with_ - bare:+.1f} {unit}{beside}", "bench " + " ".join(arguments)


def run_row():
    """cuvisor run itself, before it becomes the program."""
    def best(command):
        times = []
        for _ in range(200):
            before = time.perf_counter()
            subprocess.run(command, check=True)
            times.append(time.perf_counter() - before)
        return sorted(times)[60] * 1e3

    bare, held = best(["/bin/true"]), best([str(RELEASE / "cuvisor"), "run", "--devices", "1", "/bin/true"])
    yield "cuvisor run before the program starts", f"{bare:.2f} to {held:.2f} ms", f"+{held - bare:.2f} ms", "cuvisor run --devices 1 /bin/true"


def held_environment():
    """A policy of 10 rules, the last of which matches, beside an empty library and beside nothing."""
    base = {"PATH": "/usr/bin:/bin", "CUDA_VISIBLE_DEVICES": "0"}
    return base, base | preloaded(EMPTY), base | preloaded(LIBRARY) | {"CUVISOR_POLICY": policy(10, "held.toml"), "CUVISOR_BENCH_JOB": "j9"}


def system_calls_row():
    """System calls of a start, the empty library's look-up and mapping among them."""
    if shutil.which("strace") is None:
        return

    def count(environment):
        trace = WORK / "trace"
        preload = environment.pop("LD_PRELOAD")
        subprocess.run(["strace", "-f", "-o", str(trace), "-E", f"LD_PRELOAD={preload}", "/bin/true"], env=environment, check=True)
        return sum("(" in line for line in trace.read_text().splitlines())

    _, empty, held = held_environment()
    before, after = count(empty), count(held)
    yield "system calls of a start, 10 rules", f"{before} to {after}", f"+{after - before} beside the empty library", "strace -f /bin/true"


def python_row():
    """A start of Python, alternately without and with the library."""
    bare, _, held = held_environment()
    python = subprocess.run(["python3", "-c", "import sys; print(sys.executable)"], capture_output=True, text=True).stdout.strip()
    times = {False: [], True: []}
    for _ in range(150):
        for kind, environment in ((False, bare), (True, held)):
            before = time.perf_counter()
            subprocess.run([python, "-c", "pass"], env=environment, check=True)
            times[kind].append(time.perf_counter() - before)
    low = {kind: sum(sorted(all)[:90]) / 90 * 1e3 for kind, all in times.items()}
    spread = (sorted(times[False])[90] - sorted(times[False])[10]) * 1e3
    yield "python3 -c pass", f"{low[False]:.2f} to {low[True]:.2f} ms", f"{low[True] - low[False]:+.2f} ms; bare runs differ by {spread:.2f} ms", "python3 -c pass, 150 times each"


def many_row():
    """300 processes at once, each cuInit and cuDeviceGet."""
    prog = [str(CALLERS / "prog"), "handle", "init", "get:0"]

    def all_at_once(environment):
        before = time.perf_counter()
        running = [subprocess.Popen(prog, env=environment, stdout=subprocess.DEVNULL) for _ in range(300)]
        for process in running:
            process.wait()
        return time.perf_counter() - before

    # Made before the clock starts.
    held = preloaded(LIBRARY) | {"CUVISOR_DEVICES": "1"}
    kinds = {"bare": {}, "empty": preloaded(EMPTY), "silent": held, "logged": held | {"CUVISOR_AUDIT": str(WORK / "many.jsonl")},
             "log only": preloaded(CALLERS / "liblog_only.so") | {"LOG_ONLY": str(WORK / "many.log")}}
    environments = {kind: driver_environment(**more) for kind, more in kinds.items()}
    rounds = [{kind: all_at_once(environments[kind]) for kind in random.sample(list(kinds), len(kinds))} for _ in range(20)]
    times = {kind: statistics.median(one[kind] for one in rounds) for kind in kinds}
    # Of each round its own ratio: the machine is not the same in the next one.
    ratio = {kind: f"{statistics.median(one[kind] / one['bare'] for one in rounds):.2f} x" for kind in kinds}
    told = f"{ratio['silent']} without a log, {ratio['empty']} an empty C library; {ratio['logged']} all logged, {ratio['log only']} a C library that logs and does nothing else"
    yield "300 processes at once, cuInit and cuDeviceGet", f"{times['bare']:.2f} to {times['silent']:.2f} s, {times['logged']:.2f} s logged", told, "prog handle init get:0"


def memory_row():
    def private(more):
        environment = {"PATH": "/usr/bin:/bin", "CUDA_VISIBLE_DEVICES": "0"} | more
        process = subprocess.Popen(["/bin/sleep", "2"], env=environment)
        time.sleep(0.5)
        total = sum(int(n) for n in re.findall(r"Private_Dirty:\s+(\d+)", pathlib.Path(f"/proc/{process.pid}/smaps").read_text()))
        process.kill()
        process.wait()
        return total

    empty = private(preloaded(EMPTY))
    held = private(preloaded(LIBRARY) | {"CUVISOR_POLICY": policy(10, "memory.toml"), "CUVISOR_BENCH_JOB": "j9"})
    yield "private dirty memory of an idle process", f"{empty} to {held} KiB", f"+{held - empty} KiB beside the empty library", "/proc/pid/smaps of sleep"


def write_log(path, lines):
    """A log as jobs of 40 users on 8 GPUs write it, each with four lines, some 570 bytes each."""
    with path.open("wb") as out:
        subprocess.run([CALLERS / "log", str(lines)], stdout=out, check=True)


DUCK = """
import sys, time, duckdb
before = time.perf_counter()
rows = duckdb.sql('''
  with e as (select event, pid, start_time, uid, exe, argv, time::timestamp as t, device.uuid as gpu from read_json('%s', format='newline_delimited',
    columns={event:'VARCHAR', pid:'BIGINT', start_time:'BIGINT', uid:'INT', exe:'VARCHAR', argv:'VARCHAR[]', time:'VARCHAR', device:'STRUCT(uuid VARCHAR)'})),
  p as (select pid, start_time, any_value(uid) uid, any_value(argv[2]) script, any_value(gpu) gpu, min(case when event='context' then t end) c, max(t) l from e group by pid, start_time)
  select gpu, script, uid, count(*), min(c), max(l), sum(epoch(l-c)) from p group by all''').fetchall()
print(time.perf_counter() - before, len(rows))
"""


def report_rows():
    log = WORK / "big.jsonl"
    write_log(log, 1_886_000)
    python = ROOT / "target" / "venv" / "bin" / "python3"
    subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "duckdb"], check=False)
    own, duck, peak = [], [], 0
    for _ in range(5):
        before = time.perf_counter()
        process = subprocess.Popen([str(RELEASE / "cuvisor"), "report", "--csv", str(log)], stdout=subprocess.DEVNULL)
        _, _, usage = os.wait4(process.pid, 0)
        own.append(time.perf_counter() - before)
        peak = max(peak, usage.ru_maxrss)
        out = subprocess.run([python, "-c", DUCK % log], capture_output=True, text=True, env=os.environ | {"NO_COLOR": "1"})
        if out.returncode == 0:
            duck.append(float(out.stdout.split()[-2]))
    own, duck = sorted(own), sorted(duck)
    against = f"{own[2] / duck[2]:.2f} x DuckDB's {duck[2]:.2f} s" if duck else "DuckDB is not there"
    yield "report of a 1 GiB log by GPU, program and user", f"{own[2]:.2f} s, {peak >> 10} MiB at most", against, "cuvisor report --csv"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--peers")
    parser.add_argument("--report", action="store_true")
    args = parser.parse_args()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=ROOT).stdout.strip()
    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "unknown processor")
    print(f"{os.cpu_count()} cores of {model}, {time.strftime('%Y-%m-%d')}, commit {commit}\n")
    print("| what | measured | against | command |\n| --- | --- | --- | --- |")
    sections = [start_rows(args.peers), page_rows(), system_calls_row(), python_row(), call_rows(), run_row(), many_row(), memory_row()] + ([report_rows()] if args.report else [])
    for section in sections:
        for row in section:
            print("| " + " | ".join(row) + " |", flush=True)
    shutil.rmtree(WORK)


if __name__ == "__main__":
    sys.exit(main())
