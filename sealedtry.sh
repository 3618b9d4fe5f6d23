mkdir -p /tmp/w/mnt; unshare -m mount -t tmpfs none /tmp/w/mnt; echo "mount $?"
strace -p $1 -o /dev/null & S=$!; sleep 0.5; kill $S 2>/dev/null; 
readlink /proc/$1/exe; echo "exe $?"; readlink /proc/1/exe;
strace -o /dev/null true; echo "strace child $?"
cat /proc/$1/cmdline | tr '\0' ' '; cat /proc/$1/environ >/dev/null && echo environ
