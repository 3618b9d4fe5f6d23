#!/usr/bin/env bash
# Checks Cuvisor on this machine's real driver and GPUs, against the programs that are installed here.
# Needs no network and changes no setting of a GPU. Writes a table as Markdown and JSON into the folder given (target/gpu).
set -euo pipefail
cd "$(dirname "$0")/.."
if [ ! -e target/release/libcuvisor.so ] || [ ! -e target/callers/reader ]; then
    cargo build --release --workspace --quiet
    cargo test --release --quiet -p cuvisor-tests immediate >/dev/null # compiles tests/callers
fi
exec python3 -B scripts/gpu_check.py "${1:-target/gpu}"
