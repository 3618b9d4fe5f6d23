#!/usr/bin/env bash
# Boots Debian's kernels in an emulator and checks the kernel seal under each: by opening for writing (Linux 6.1), by
# commands to devices (6.12), for all threads (the newest), and where there is no Landlock at all.
#   scripts/kernels.sh [SUITE...]    bookworm, trixie, sid; "none" is the newest without Landlock
# Needs qemu-system-x86, busybox-static, cpio, and root for device nodes; says SKIPPED without.
set -euo pipefail
cd "$(dirname "$0")/.."
WORK=$PWD/target/kernels
KEYS=/usr/share/keyrings/debian-archive-keyring.gpg
# Debian's archive as this machine's apt names it.
# shellcheck disable=SC2016 # apt-get expands it
MIRROR=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null | grep -m1 '/debian/$' || true)

for tool in qemu-system-x86_64 busybox cpio dpkg-deb apt-get; do
    command -v "$tool" >/dev/null || { echo "SKIPPED the seal under other kernels: $tool is not installed"; exit 0; }
done
if [ -z "$MIRROR" ] || [ ! -e "$KEYS" ]; then
    echo "SKIPPED the seal under other kernels: this machine's apt knows no archive of Debian"
    exit 0
fi
[ "$(id -u)" = 0 ] || { echo "SKIPPED the seal under other kernels: only root can make device nodes"; exit 0; }
if [ ! -e target/release/libcuvisor.so ] || [ ! -e target/callers/waiting ]; then
    cargo build --release --workspace --quiet
    cargo test --release --quiet -p cuvisor-tests immediate >/dev/null # compiles tests/callers
fi

# The kernel of a Debian suite, for small virtual machines; fetched once. Fails where it cannot be had.
kernel() {
    local suite=$1 place=$WORK/$1 options package binary
    [ ! -e "$place/vmlinuz" ] || { echo "$place/vmlinuz"; return; }
    mkdir -p "$place/lists/partial" "$place/cache/archives/partial" "$place/files"
    echo "deb [signed-by=$KEYS] $MIRROR $suite main" >"$place/sources.list"
    options=(-qq -o "Dir::Etc::sourcelist=$place/sources.list" -o Dir::Etc::sourceparts=/dev/null -o "Dir::State::lists=$place/lists" -o "Dir::Cache=$place/cache" -o APT::Sandbox::User=root)
    apt-get "${options[@]}" update >&2 || return 1
    package=$(apt-cache "${options[@]}" depends linux-image-cloud-amd64 | grep -o -m1 'linux-image-[0-9].*') || return 1
    # The newest suites have the kernel itself in a package of its own.
    binary=$(apt-cache "${options[@]}" depends "$package" | grep -o -m1 'linux-binary-[0-9].*') || binary=$package
    (cd "$place" && apt-get "${options[@]}" download "$binary" >&2) || return 1
    dpkg-deb -x "$place"/linux-*.deb "$place/files" || return 1
    mv "$(find "$place/files" -name 'vmlinuz*' -type f | head -1)" "$place/vmlinuz" || return 1
    rm -rf "$place/files" "$place/lists" "$place/cache" "$place"/*.deb
    echo "$place/vmlinuz"
}

# A file system for the start: the library, the callers, what they need, and what PID 1 does.
initramfs() {
    local root=$WORK/root file k
    rm -rf "$root"
    mkdir -p "$root"/{bin,dev,etc,lib64,proc,root,run,sys,tmp,callers} "$root"/machine/dev
    cp "$(command -v busybox)" "$root/bin/busybox"
    cp "$(command -v bash)" "$root/bin/bash"
    cp target/release/libcuvisor.so target/callers/libwaiting.so "$root/lib64/"
    cp target/release/libfake_cuda.so "$root/lib64/libcuda.so.1"
    cp target/callers/{ioctl,ioctl_static,prog,waiting} "$root/callers/"
    for file in $(ldd "$root/bin/bash" "$root"/callers/{ioctl,prog,waiting} "$root/lib64/libcuda.so.1" | grep -v ':$' | grep -o '/[^ ]*\.so[^ ]*' | sort -u); do
        [ -e "$root/lib64/$(basename "$file")" ] || cp -L "$file" "$root/lib64/"
    done
    mknod "$root/dev/console" c 5 1
    for k in 0 1; do
        mkdir -p "$root/machine/proc/driver/nvidia/gpus/0000:1$k:00.0" "$root/machine/sys/bus/pci/devices/0000:1$k:00.0/drm/card$k"
        printf 'GPU UUID: \t GPU-%d1111111-0000-4000-8000-000000000001\nBus Location: \t 0000:1%d:00.0\nDevice Minor: \t %d\n' "$k" "$k" "$k" \
            >"$root/machine/proc/driver/nvidia/gpus/0000:1$k:00.0/information"
        : >"$root/machine/dev/nvidia$k"
    done
    echo 'nobody:x:65534:65534::/:/bin/bash' >"$root/etc/passwd"
    for k in true '"require"'; do
        printf '[audit]\nfile = "/tmp/audit.jsonl"\n[default]\ndevices = [1]\nseal = %s\n' "$k" >"$root/etc/$(tr -d '"' <<<"$k").toml"
    done
    cat >"$root/init" <<'END'
#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc none /proc
mount -t tmpfs none /dev
mount -t tmpfs -o mode=1777 none /tmp
mkdir /dev/dri /dev/shm
for node in null nvidia0 nvidia1 nvidiactl dri/card0 dri/card1; do mknod -m 666 /dev/$node c 1 3; done
mknod -m 666 /dev/full c 1 7
ln -s /proc/self/fd/1 /dev/stdout
policy=true
# Runs a program under the library and puts what it says into one line.
under() {
    name=$1
    shift
    said=$(env -i PATH=/bin:/callers LD_LIBRARY_PATH=/lib64 FAKE_CUDA_GPUS=2 CUVISOR_PROC_ROOT=/machine CUVISOR_POLICY=/etc/$policy.toml LD_PRELOAD=/lib64/libcuvisor.so "$@" 2>&1)
    echo "ROW $name: $(echo "$said" | tr '\r\n' '  ')"
}
level() { echo "ROW $1: $(grep '"event":"init"' /tmp/audit.jsonl | tail -n 1 | grep -o '"seal":{.*' | grep -oE '"(level|abi|threads_not_covered|reason)":("[^"]*"|[0-9]+)' | tr '\n' ' ')"; }
under nodes ioctl /dev/nvidia0 /dev/nvidia1 /dev/dri/card0 /dev/dri/card1 /dev/nvidiactl /dev/null
under static bash -c 'ioctl_static /dev/nvidia0 /dev/nvidia1'
under 'empty environment' bash -c 'exec -c ioctl_static /dev/nvidia0 /dev/nvidia1'
under files bash -c 'for f in /tmp/new /etc/passwd /dev/shm/new /root/new /dev/stdout /dev/null; do echo >>$f || echo no $f; done; echo >/new && echo new'
under links bash -c 'busybox mkdir /tmp/a /tmp/b; echo >/tmp/a/x; busybox ln /tmp/a/x /tmp/b/x && echo linked'
under 'the variable' bash -c 'echo $CUVISOR_SEALED'
under 'the variable alone' "CUVISOR_SEALED=$said" ioctl /dev/nvidia0 /dev/nvidia1
under inherited bash -c 'prog handle init'
level 'told of that'
under 'thread that ran before' waiting /dev/nvidia0 /dev/nvidia1
level 'told of it'
chmod 666 /tmp/audit.jsonl
under 'another user' busybox su nobody -s /bin/bash -c 'ioctl /dev/nvidia0 /dev/nvidia1; busybox grep NoNewPrivs /proc/self/status'
policy=require
under required prog handle init
level 'told then'
poweroff -f
END
    chmod 755 "$root/init"
    (cd "$root" && find . | cpio --quiet -o -H newc) >"$WORK/initramfs"
}

# What PID 1 says under a kernel, with these parameters more.
boot() {
    timeout 300 qemu-system-x86_64 -accel tcg -cpu max -m 512 -nographic -no-reboot -nodefaults -serial stdio \
        -kernel "$1" -initrd "$WORK/initramfs" -append "console=ttyS0 quiet panic=-1 ${2:-}" </dev/null 2>"$WORK/qemu.txt" | tr -d '\r' | grep -ao 'ROW .*' | sed -E 's/^ROW //; s/ +/ /g; s/ $//; s/#[0-9a-f]{16}/#MARK/'
}

expected() {
    case $1 in
    bookworm) cat <<'END'
nodes: /dev/nvidia0 open 13 /dev/nvidia1 25 /dev/dri/card0 open 13 /dev/dri/card1 25 /dev/nvidiactl 25 /dev/null 25
static: /dev/nvidia0 open 13 /dev/nvidia1 25
empty environment: /dev/nvidia0 open 13 /dev/nvidia1 25
files: bash: line 1: /new: Permission denied
links: linked
the variable: /dev/nvidia0 /dev/dri/card0 #MARK
the variable alone: /dev/nvidia0 open 13 /dev/nvidia1 25
inherited: init 0
told of that: "level":"inherited"
thread that ran before: /dev/nvidia0 25 /dev/nvidia1 25 init 0
told of it: "level":"open for writing" "abi":2 "threads_not_covered":1
another user: /dev/nvidia0 open 13 /dev/nvidia1 25 NoNewPrivs:	1
required: init 0
told then: "level":"open for writing" "abi":2
END
        ;;
    trixie | sid) cat <<'END'
nodes: /dev/nvidia0 13 /dev/nvidia1 25 /dev/dri/card0 13 /dev/dri/card1 25 /dev/nvidiactl 25 /dev/null 25
static: /dev/nvidia0 13 /dev/nvidia1 25
empty environment: /dev/nvidia0 13 /dev/nvidia1 25
files: new
links: linked
the variable: /dev/nvidia0 /dev/dri/card0 #MARK
the variable alone: /dev/nvidia0 13 /dev/nvidia1 25
inherited: init 0
told of that: "level":"inherited"
END
        if [ "$1" = trixie ]; then
            echo 'thread that ran before: /dev/nvidia0 25 /dev/nvidia1 25 init 0'
            echo 'told of it: "level":"ioctl" "abi":ABI "threads_not_covered":1'
        else
            echo 'thread that ran before: /dev/nvidia0 13 /dev/nvidia1 25 init 0'
            echo 'told of it: "level":"ioctl" "abi":ABI'
        fi
        cat <<'END'
another user: /dev/nvidia0 13 /dev/nvidia1 25 NoNewPrivs:	1
required: init 0
told then: "level":"ioctl" "abi":ABI
END
        ;;
    none) cat <<'END'
nodes: /dev/nvidia0 25 /dev/nvidia1 25 /dev/dri/card0 25 /dev/dri/card1 25 /dev/nvidiactl 25 /dev/null 25
static: /dev/nvidia0 25 /dev/nvidia1 25
empty environment: /dev/nvidia0 25 /dev/nvidia1 25
files: new
links: linked
the variable:
the variable alone: /dev/nvidia0 25 /dev/nvidia1 25
inherited: init 0
told of that: "level":"failed" "reason":"no landlock"
thread that ran before: /dev/nvidia0 25 /dev/nvidia1 25 init 0
told of it: "level":"failed" "reason":"no landlock"
another user: /dev/nvidia0 25 /dev/nvidia1 25 NoNewPrivs:	0
required: init 100
told then: "level":"failed" "reason":"no landlock"
END
        ;;
    esac
}

initramfs
[ $# -gt 0 ] || set -- bookworm trixie sid none
for suite in "$@"; do
    of=$suite more=
    if [ "$suite" = none ]; then of=sid more=lsm=yama; fi
    if ! image=$(kernel "$of"); then
        echo "SKIPPED the seal under the kernel of $suite: it could not be fetched"
        continue
    fi
    boot "$image" "$more" >"$WORK/said.txt" || true
    if [ ! -s "$WORK/said.txt" ]; then
        echo "SKIPPED the seal under the kernel of $suite: the emulator did not get as far as the checks ($WORK/qemu.txt)"
        continue
    fi
    if ! diff <(expected "$suite") <([ "$suite" = bookworm ] && cat "$WORK/said.txt" || sed -E 's/"abi":[0-9]+/"abi":ABI/' "$WORK/said.txt"); then
        echo "the seal does not do what it should under the kernel of $suite"
        exit 1
    fi
    echo "the seal under the kernel of $suite: $(grep -oE -m1 '"abi":[0-9]+' "$WORK/said.txt" || echo 'no Landlock'), $(wc -l <"$WORK/said.txt") rows right"
done
