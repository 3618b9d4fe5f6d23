"""Lists the licence of each crate in the output of `cargo metadata` on stdin that is linked into the command or the library."""
import json
import sys

data = json.load(sys.stdin)
packages = {package["id"]: package for package in data["packages"]}
nodes = {node["id"]: node for node in data["resolve"]["nodes"]}
seen, waiting = set(), [p["id"] for p in packages.values() if p["name"] in ("cuvisor", "cuvisor-preload") and p["source"] is None]
while waiting:
    own = waiting.pop()
    if own in seen:
        continue
    seen.add(own)
    for dependency in nodes[own]["deps"]:
        if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
            waiting.append(dependency["pkg"])
for name, version, licence, place in sorted((p["name"], p["version"], p["license"] or "?", p["repository"] or "") for p in map(packages.get, seen) if p["source"]):
    print(f"{name} {version}: {licence} {place}".rstrip())
