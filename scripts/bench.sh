#!/usr/bin/env bash
# Measures what the library costs, beside nothing and beside an empty preload library, in one run.
#   scripts/bench.sh [--peers DIR] [--report]    DIR: other preload libraries to start under; --report: a 1 GiB log against DuckDB, too
#   scripts/bench.sh --growth                    how it grows with rules, GPUs, threads and log lines: draws scripts/growth.svg
# A timing depends on the machine and what else it does: look at the ratios. No test depends on them.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --release --workspace --quiet
cargo test --release --quiet -p cuvisor-tests immediate >/dev/null # compiles tests/callers
if [ "${1:-}" = --growth ]; then
    [ -x target/venv/bin/python3 ] || python3 -m venv target/venv
    target/venv/bin/python3 -c 'import matplotlib' 2>/dev/null || target/venv/bin/python3 -m pip install --quiet --disable-pip-version-check matplotlib
    exec target/venv/bin/python3 -B scripts/growth.py
fi
exec python3 -B scripts/bench.py "$@"
