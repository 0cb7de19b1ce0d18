#!/bin/bash -l
#PBS -N hpcbench
#PBS -v HPCBENCH_MARK=hpcbench:me/deepcam:0badf00d
#PBS -l select=4:system=polaris
#PBS -l walltime=02:00:00
#PBS -l place=scatter:excl
#PBS -j oe
#PBS -r y
#PBS -A my-project
#PBS -q debug-scaling
#PBS -l filesystems=home:eagle

# deepcam, preset node, on Polaris (ALCF).
# 4 nodes x 4 ranks of 8 cores and 1 GPU, at most 02:00:00 an attempt, 8 node-hours.
# Written by hpcbench; submitted in its folder.

set -euo pipefail
cancelled=
trap '[ "$SECONDS" -ge 7170 ] || cancelled=--cancelled' TERM  # the run ends first, and then what it staged goes
run=/project/me/runs/deepcam
job_id="${PBS_JOBID%%.*}"
attempt=${HPCBENCH_ATTEMPT:-1}
cd /project/me

export OMP_NUM_THREADS=8
export HPCBENCH_WARN_S=120
export NCCL_NET_GDR_LEVEL=PHB
export NCCL_CROSS_NIC=1
export FI_CXI_DISABLE_HOST_REGISTER=1
export FI_CXI_DEFAULT_CQ_SIZE=131072
export FI_MR_CACHE_MONITOR=userfaultfd

launch=(mpiexec -n 16 --ppn 4 --cpu-bind list:24-31:16-23:8-15:0-7)
launch_per_node=(mpiexec -n 4 --ppn 1 --depth 8 --cpu-bind depth)
hpcbench=(hpcbench)
local_path="/local/scratch/hpcbench-${job_id}"

# One job and attempt at a time works in the run folder; another one ends here.
hold=$("${hpcbench[@]}" jobs --take "$job_id" --attempt "$attempt" --process "$$" \
    --scheduler pbs --nodes 4 --mark hpcbench:me/deepcam:0badf00d "$run")
trap 'printf "%(%s)T %d\n" -1 "$?" > "$hold.end" || true' EXIT

echo "hpcbench: job $job_id, attempt $attempt, $(date)"
status=0
left_s=$((7080 - SECONDS))
[ "$left_s" -gt 0 ] || left_s=1
timeout --foreground --signal=USR1 --preserve-status "$left_s" "${launch[@]}" "${hpcbench[@]}" train deepcam --preset node --data.root=/project/me/data/deepcam \
    --check-job ranks=16,nodes=4,cores=8,gpus=1 \
    --run-dir "$run" --hold "$hold" --resume-or-start --parallel.threads 8 --staging.destination "$local_path" || status=$?

"${launch_per_node[@]}" "${hpcbench[@]}" stage --clean "$local_path" || true
"${launch_per_node[@]}" rmdir "$local_path" || true
resubmit() {
    local variables="HPCBENCH_ATTEMPT=$((attempt + 1)),HPCBENCH_MARK=${HPCBENCH_MARK:-}"
    cd "$run" || return
    qsub -v "$variables" -W depend=afterany:"$PBS_JOBID" job.sh | tee "$hold.next"
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
