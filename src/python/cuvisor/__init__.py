"""Fixes which NVIDIA GPUs a child process may use before any of its code runs.

>>> import subprocess, sys, cuvisor
>>> subprocess.run([sys.executable, "train.py"], env=cuvisor.environ(devices=[1]))  # doctest: +SKIP

The process that imports this is not changed: its driver may be initialised already. What it starts is held.
"""
import os
import shutil
import sys
import sysconfig

__version__ = "0.1.0"
__all__ = ["command_path", "environ", "library_path"]


def library_path():
    """The path of libcuvisor.so, for LD_PRELOAD.

    The loader splits LD_PRELOAD at blanks and colons and cannot take a path that holds one: then a ValueError says so.
    """
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libcuvisor.so")
    if any(c in path for c in " \t\n:"):
        raise ValueError(f"{path}: the loader cannot take a path with a blank or a colon; install cuvisor elsewhere")
    return path


def command_path():
    """The path of the cuvisor command that belongs to this package; else the first one on the PATH."""
    beside = [os.path.dirname(sys.executable), sysconfig.get_path("scripts")]
    if sys.version_info >= (3, 10):
        beside.append(sysconfig.get_path("scripts", sysconfig.get_preferred_scheme("user")))
    for folder in beside:
        path = os.path.join(folder, "cuvisor")
        if os.access(path, os.X_OK):
            return path
    found = shutil.which("cuvisor")
    if found is None:
        raise FileNotFoundError("the cuvisor command is neither beside this Python nor on the PATH")
    return found


def environ(devices=None, *, mode=None, audit=None, policy=None, seal=None, trace=False, base=None):
    """A copy of the environment under which a child process is held.

    devices: "all", "none", or a list of indices, GPU- UUIDs, MIG- UUIDs or PCI bus ids; None leaves that to the policy.
    mode: "enforce", "audit" or "off". audit, policy: paths of files. seal: True or "require".
    trace: tell on stderr who initialises CUDA. base: the environment to begin with, instead of os.environ.
    """
    env = dict(os.environ if base is None else base)
    if devices is not None:
        env["CUVISOR_DEVICES"] = devices if isinstance(devices, str) else ",".join(str(device) for device in devices) or "none"
    if mode is not None:
        if mode not in ("enforce", "audit", "off"):
            raise ValueError(f"mode {mode!r}: write 'enforce', 'audit' or 'off'")
        env["CUVISOR_MODE"] = mode
    for name, path in (("CUVISOR_AUDIT", audit), ("CUVISOR_POLICY", policy)):
        if path is not None:
            env[name] = os.path.abspath(os.fspath(path))
    if seal is not None:
        env["CUVISOR_SEAL"] = "require" if seal == "require" else "1" if seal else "0"
    if trace:
        env["CUVISOR_TRACE"] = "1"
    own = library_path()
    others = [entry for entry in env.get("LD_PRELOAD", "").replace(":", " ").split() if entry != own]
    sanitizers = [entry for entry in others if os.path.basename(entry).startswith(("libasan.so", "libtsan.so", "libclang_rt.asan", "libclang_rt.tsan"))]
    env["LD_PRELOAD"] = ":".join(sanitizers + [own] + [entry for entry in others if entry not in sanitizers])
    return env
