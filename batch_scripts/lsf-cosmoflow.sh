#!/bin/bash
#BSUB -J hpcbench
#BSUB -Jd hpcbench:me/cosmoflow:0badf00d
#BSUB -o job-%J.log
#BSUB -W 2:00
#BSUB -nnodes 4
#BSUB -P my-project
#BSUB -q batch
#BSUB -alloc_flags NVME

# cosmoflow, preset node, on Summit (OLCF).
# 4 nodes x 6 ranks of 7 cores and 1 GPU, at most 02:00:00 an attempt, 8 node-hours.
# Written by hpcbench; submitted in its folder.

set -euo pipefail
cancelled=
trap '[ "$SECONDS" -ge 7170 ] || cancelled=--cancelled' INT TERM  # the run ends first, and then what it staged goes
trap '' USR2  # sent at the time limit, ten minutes before LSF kills: the run may write its checkpoint
run=/project/me/runs/cosmoflow
job_id="$LSB_JOBID"
attempt=${HPCBENCH_ATTEMPT:-1}
cd /project/me

export OMP_NUM_THREADS=7
export HPCBENCH_WARN_S=120

launch=(jsrun --nrs 4 --rs_per_host 1 --tasks_per_rs 6 --cpu_per_rs 42 --gpu_per_rs 6 --bind packed:7)
launch_per_node=(jsrun --nrs 4 --rs_per_host 1 --tasks_per_rs 1 --cpu_per_rs 7 --gpu_per_rs 0 --bind packed:7)
hpcbench=(hpcbench)
local_path="/mnt/bb/${USER}/hpcbench-${job_id}"

# One job and attempt at a time works in the run folder; another one ends here.
hold=$("${hpcbench[@]}" jobs --take "$job_id" --attempt "$attempt" --process "$$" \
    --scheduler lsf --nodes 4 --mark hpcbench:me/cosmoflow:0badf00d "$run")
trap 'printf "%(%s)T %d\n" -1 "$?" > "$hold.end" || true' EXIT

echo "hpcbench: job $job_id, attempt $attempt, $(date)"
status=0
left_s=$((7080 - SECONDS))
[ "$left_s" -gt 0 ] || left_s=1
timeout --foreground --signal=USR1 --preserve-status "$left_s" "${launch[@]}" "${hpcbench[@]}" train cosmoflow --preset node --data.root=/project/me/data/cosmoflow \
    --check-job ranks=24,nodes=4,cores=7,gpus=1 \
    --run-dir "$run" --hold "$hold" --resume-or-start --parallel.threads 7 --staging.destination "$local_path" || status=$?

"${launch_per_node[@]}" "${hpcbench[@]}" stage --clean "$local_path" || true
"${launch_per_node[@]}" rmdir "$local_path" || true
resubmit() {
    cd "$run" || return
    HPCBENCH_ATTEMPT=$((attempt + 1)) bsub -w "ended($LSB_JOBID)" < job.sh | tee "$hold.next"
}
if [ "$attempt" -lt 10 ]; then last=; else last=--last-attempt; fi
interrupted() {
    asked=$cancelled
    "${hpcbench[@]}" jobs --interrupted $asked $last --hold "$hold" "$run"
}
if [ "$status" -ne 0 ] && interrupted; then
    for pause in 0 5 20 60 120; do
        sleep "$pause"
        [ "$cancelled" = "$asked" ] || interrupted || break  # it may have been cancelled during the pause
        resubmit && break
    done || echo 'hpcbench: the job cannot be queued again'
fi
exit "$status"
