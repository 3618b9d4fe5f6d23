#!/usr/bin/env bash
# Builds Cuvisor and shows what it is for: Python programs that get the wrong GPU, without it and with it.
# On a machine with an NVIDIA driver the programs use that, else a driver without GPUs that the build makes.
set -euo pipefail
cd "$(dirname "$0")/.."

need() { # command, Debian package
    command -v "$1" >/dev/null && return
    if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
        echo "installing $2"
        apt-get -qq update >/dev/null && apt-get -qq install -y "$2" >/dev/null
    else
        echo "quickstart: $1 is missing: install it (on Debian: apt-get install $2)" >&2
        exit 1
    fi
}
need cc gcc
need python3 python3
if ! command -v cargo >/dev/null; then
    echo "quickstart: cargo is missing: install Rust 1.90 or newer (https://rustup.rs, or Debian's rustup package)" >&2
    exit 1
fi
echo "building (cargo build --release --workspace)"
cargo build --release --workspace --quiet
exec python3 scripts/quickstart.py
