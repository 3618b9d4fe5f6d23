#!/usr/bin/env bash
# Measures what the library costs, beside nothing and beside an empty preload library, in one run.
#   scripts/bench.sh [--peers DIR] [--report]    DIR: other preload libraries to start under; --report: a 1 GiB log against DuckDB, too
# A timing depends on the machine and what else it does: look at the ratios. No test depends on them.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --release --workspace --quiet
cargo test --release --quiet -p cuvisor-tests immediate >/dev/null # compiles tests/callers
exec python3 scripts/bench.py "$@"
