#!/usr/bin/env bash
# Runs every check: form, lints, documentation, unit tests, whole-process tests, scripts.
# What is missing is installed where it can be (as root on Debian); else the tests that need it say SKIPPED.
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_TERM_COLOR=never

say() { printf '\n== %s (after %d s)\n' "$1" "$SECONDS"; }

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    missing=()
    for pair in cc:gcc python3:python3 strace:strace readelf:binutils shellcheck:shellcheck chromium:chromium gzip:gzip debootstrap:debootstrap musl-gcc:musl-tools qemu-system-x86_64:qemu-system-x86 busybox:busybox-static cpio:cpio; do
        command -v "${pair%%:*}" >/dev/null || missing+=("${pair##*:}")
    done
    python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
    echo 'int main(void) { return 0; }' | cc -m32 -o /dev/null -x c - 2>/dev/null || missing+=(gcc-multilib)
    if [ ${#missing[@]} -gt 0 ]; then
        say "installing ${missing[*]}"
        apt-get -qq update >/dev/null
        apt-get -qq install -y "${missing[@]}" >/dev/null
    fi
fi

say "form"
cargo fmt --all --check
strangers=$(git ls-files 2>/dev/null | cut -d/ -f1 | sort -u |
    grep -vxE '\.ci|\.gitignore|\.rustfmt\.toml|CHANGELOG\.md|Cargo\.(lock|toml)|LICENSE-(APACHE|MIT)|README\.md|SECURITY\.md|scripts|src|tests' || true)
if [ -n "$strangers" ]; then
    echo "these do not belong at the top level:" "$strangers"
    exit 1
fi

say "lints (warnings are errors)"
# The preload library and the fake driver are linted alone: the tests' dependencies bring std features into them.
cargo clippy --quiet -p cuvisor-preload -p fake_cuda -- -D warnings
cargo clippy --quiet -p cuvisor-policy -p cuvisor -p cuvisor-tests --all-targets -- -D warnings

say "documentation"
RUSTDOCFLAGS="-D warnings" cargo doc --quiet --no-deps -p cuvisor-policy --document-private-items

say "build"
cargo build --release --workspace --quiet

say "clients from PyPI"
if [ ! -x target/venv/bin/python3 ]; then
    python3 -m venv target/venv || echo "no venv: the test of cuda-bindings will be skipped"
fi
if [ -x target/venv/bin/python3 ]; then
    target/venv/bin/python3 -c 'import cuda.bindings, yaml, chdb, ipykernel, jupyter_client, dockerfile_parse' 2>/dev/null ||
        target/venv/bin/python3 -m pip install --quiet --disable-pip-version-check cuda-bindings pyyaml chdb ipykernel jupyter_client dockerfile-parse ||
        echo "packages from PyPI cannot be installed: their tests will be skipped"
fi

say "packages, built twice"
if scripts/package.sh target/package >target/package.txt 2>&1; then
    CUVISOR_PACKAGE_TARGET=$PWD/target/packaging-again scripts/package.sh target/package-again >target/package.txt 2>&1
    cmp target/package/SHA256SUMS target/package-again/SHA256SUMS
    # The stand-in driver for the systems below, which are older than this one.
    PATH=$PWD/target/venv/bin:$PATH cargo zigbuild --quiet --release -p fake_cuda --target x86_64-unknown-linux-gnu.2.17 --target-dir target/packaging
    cat target/package/SHA256SUMS
else
    cat target/package.txt
    echo "the packages could not be built: their tests will be skipped"
fi

say "Debian systems, the oldest and the newest"
for suite in bullseye sid; do
    place=$PWD/target/roots/$suite
    mkdir -p target/roots
    if [ "$(id -u)" = 0 ] && command -v debootstrap >/dev/null && [ ! -e "$place/usr/bin/python3" ]; then
        rm -rf "$place"
        debootstrap --variant=minbase --include=python3 "$suite" "$place" >target/debootstrap.txt 2>&1 || { tail -3 target/debootstrap.txt; rm -rf "$place"; }
    fi
done

say "tests"
cargo test --release --workspace --exclude cuvisor-preload --exclude fake_cuda -- --nocapture 2>&1 | tee target/tests.txt

say "the kernel seal under other kernels"
scripts/kernels.sh | tee target/kernels.txt

say "scripts"
if command -v shellcheck >/dev/null; then
    shellcheck scripts/*.sh .ci/run
else
    echo "SKIPPED shellcheck: it is not installed"
fi
scripts/quickstart.sh >target/quickstart.txt
grep -q "cuvisor run --devices" target/quickstart.txt

skipped=$(grep -h '^SKIPPED' target/tests.txt target/kernels.txt || true)
if [ -n "$skipped" ]; then
    say "skipped here"
    echo "$skipped"
fi
say "all checks passed"
