#!/usr/bin/env bash
# Builds the packages into target/package (or the folder given): a wheel, a .deb, a tarball, and their checksums.
# Two builds of one commit give the same bytes. What it needs beside Rust and Python it takes from PyPI and crates.io.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(mkdir -p "${1:-target/package}" && cd "${1:-target/package}" && pwd)
work=${CUVISOR_PACKAGE_TARGET:-$PWD/target/packaging}
tools=$PWD/target/tools
export CARGO_TERM_COLOR=never
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || stat -c %Y Cargo.lock)
export SOURCE_DATE_EPOCH
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)

say() { printf '\n-- %s\n' "$1"; }

say "tools"
if [ ! -x target/venv/bin/python3 ]; then python3 -m venv target/venv; fi
target/venv/bin/python3 -c 'import ziglang, hatchling' 2>/dev/null ||
    target/venv/bin/python3 -m pip install --quiet --disable-pip-version-check ziglang cargo-zigbuild hatchling
[ -x "$tools/bin/cargo-deb" ] || cargo install --quiet --locked --root "$tools" cargo-deb
PATH=$PWD/target/venv/bin:$tools/bin:$PATH

# No path of this machine in what is built.
remap="--remap-path-prefix=$PWD=/cuvisor --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo --remap-path-prefix=$(rustc --print sysroot)=/rust"

say "the library"
# It names no symbol version above 2.17 by itself (src/preload/src/weak.rs), so the linker of every day makes it.
RUSTFLAGS=$remap cargo build --quiet --release -p cuvisor-preload --target-dir "$work"
say "the command, for glibc 2.17"
target=x86_64-unknown-linux-gnu
RUSTFLAGS=$remap cargo zigbuild --quiet --release -p cuvisor --target $target.2.17 --target-dir "$work"
say "the empty 32-bit library"
# What a 32-bit program's loader finds in place of the library it could not load.
python3 -m ziglang cc -target x86-linux-gnu.2.17 -shared -nostdlib -s -Wl,-soname,libcuvisor.so -Wl,--build-id=none \
    -o "$work/libcuvisor32.so" -x c /dev/null

stage=$work/stage
rm -rf "$stage"
root=$stage/cuvisor-$version-x86_64-linux
mkdir -p "$root"/{bin,lib,man,completions,examples}
install -m 0755 "$work/$target/release/cuvisor" "$root/bin/cuvisor"
install -m 0644 "$work/release/libcuvisor.so" "$work/libcuvisor32.so" "$root/lib/"
"$root/bin/cuvisor" manual "$work/manual"
install -m 0644 "$work"/manual/*.1 "$root/man/"
install -m 0644 "$work"/manual/cuvisor.bash "$work"/manual/_cuvisor "$work"/manual/cuvisor.fish "$root/completions/"
install -m 0644 README.md CHANGELOG.md SECURITY.md LICENSE-* "$root/"
install -m 0644 src/cli/src/install/policy.toml "$root/examples/"
cp -r scripts/examples/. "$root/examples/"
# The licences of what is linked in.
cargo metadata --format-version 1 --filter-platform $target | python3 scripts/licences.py > "$root/LICENCES-of-dependencies.txt"

say "tarball"
tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -C "$stage" -cf - "$(basename "$root")" | gzip -9n > "$out/$(basename "$root").tar.gz"

say "wheel"
wheel=$work/wheel
rm -rf "$wheel" && cp -r src/python "$wheel" && mkdir -p "$wheel/bin"
sed -i "s/^__version__ = .*/__version__ = \"$version\"/" "$wheel/cuvisor/__init__.py"
install -m 0755 "$root/bin/cuvisor" "$wheel/bin/"
install -m 0644 "$root"/lib/*.so "$wheel/cuvisor/"
cp README.md "$root"/LICEN* "$wheel/"
python3 -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir "$out" "$wheel"

say "deb"
rm -rf "$work/release/deb" && cp -r "$root" "$work/release/deb"
gzip -9n "$work"/release/deb/man/*.1
(cd src/cli && CARGO_TARGET_DIR=$work cargo deb --quiet --no-build --no-strip --output "$out/cuvisor_${version}_amd64.deb")

(cd "$out" && sha256sum cuvisor*"$version"* > SHA256SUMS && cat SHA256SUMS)
