#!/bin/sh
# A Slurm TaskProlog: what it prints as "export NAME=VALUE" is set in the task (slurm.conf, TaskProlog=).
# Slurm's own list becomes the policy, so nothing in the job can widen it.
library=/usr/lib/x86_64-linux-gnu/cuvisor/libcuvisor.so
[ -r "$library" ] || exit 0
echo "export LD_PRELOAD=$library${LD_PRELOAD:+:$LD_PRELOAD}"
echo "export CUVISOR_DEVICES=${CUDA_VISIBLE_DEVICES:-none}"
echo "export CUVISOR_AUDIT=/var/log/cuvisor/{uid}.jsonl"
