#!/bin/bash
#SBATCH --job-name=hpcbench:me/cosmoflow:0badf00d
#SBATCH --comment=hpcbench:me/cosmoflow:0badf00d
#SBATCH --output=job-%j.log
#SBATCH --open-mode=append
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=32
#SBATCH --time=02:00:00
#SBATCH --signal=USR1@120
#SBATCH --requeue
#SBATCH --exclusive
#SBATCH --gpus-per-node=4
#SBATCH --account=my-project
#SBATCH --qos=regular
#SBATCH --constraint=gpu

# cosmoflow, preset node, on Perlmutter, GPU nodes (NERSC).
# 4 nodes x 4 ranks of 16 cores and 1 GPU, at most 02:00:00 an attempt, 8 node-hours.
# Written by hpcbench; submitted in its folder.

set -euo pipefail
cancelled=
trap cancelled=--cancelled TERM  # the run ends first, and then what it staged goes
run=/project/me/runs/cosmoflow
job_id="$SLURM_JOB_ID"
attempt=$((${SLURM_RESTART_COUNT:-0} + 1))
cd /project/me

export OMP_NUM_THREADS=16
export HPCBENCH_WARN_S=120

launch=(srun --nodes=4 --ntasks=16 --ntasks-per-node=4 --cpus-per-task=32 --cpu-bind=cores --kill-on-bad-exit=1 --gpu-bind=none)
launch_per_node=(srun --nodes=4 --ntasks=4 --ntasks-per-node=1 --cpus-per-task=32 --cpu-bind=cores --kill-on-bad-exit=1)
hpcbench=(hpcbench)
local_path="/dev/shm/hpcbench-${job_id}"

# One job and attempt at a time works in the run folder; another one ends here.
hold=$("${hpcbench[@]}" jobs --take "$job_id" --attempt "$attempt" --process "$$" \
    --scheduler slurm --nodes 4 --mark hpcbench:me/cosmoflow:0badf00d "$run")
trap 'printf "%(%s)T %d\n" -1 "$?" > "$hold.end" || true' EXIT

echo "hpcbench: job $job_id, attempt $attempt, $(date)"
status=0
"${launch[@]}" "${hpcbench[@]}" train cosmoflow --preset node --data.root=/project/me/data/cosmoflow \
    --check-job ranks=16,nodes=4,cores=16,gpus=1 \
    --run-dir "$run" --hold "$hold" --resume-or-start --parallel.threads 16 --staging.destination "$local_path" || status=$?

"${launch_per_node[@]}" "${hpcbench[@]}" stage --clean "$local_path" || true
"${launch_per_node[@]}" rmdir "$local_path" || true
resubmit() {
    scontrol requeue "$SLURM_JOB_ID" || return
    sleep 60 || true  # until Slurm ends this attempt
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
    done || { rm -f "$hold.next"; echo 'hpcbench: the job cannot be queued again'; }
fi
exit "$status"
