#!/bin/bash
# flux: --job-name=hpcbench:me/cosmoflow:0badf00d
# flux: --setattr=user.hpcbench=hpcbench:me/cosmoflow:0badf00d
# flux: --output=job-{{id}}.log
# flux: --nodes=4
# flux: --time-limit=7200s
# flux: --exclusive
# flux: --queue=pbatch
# flux: --bank=my-project

# cosmoflow, preset node, on Tuolumne (LLNL).
# 4 nodes x 4 ranks of 21 cores and 1 GPU, at most 02:00:00 an attempt, 8 node-hours.
# Written by hpcbench; submitted in its folder.

set -euo pipefail
cancelled=
trap '[ "$SECONDS" -ge 7170 ] || cancelled=--cancelled' HUP TERM  # the run ends first, and then what it staged goes
run=/project/me/runs/cosmoflow
job_id="$(flux job id --to=dec "$(flux getattr jobid)")"
attempt=${HPCBENCH_ATTEMPT:-1}
cd /project/me

export OMP_NUM_THREADS=21
export HPCBENCH_WARN_S=120

launch=(flux run --nodes=4 --ntasks=16 --cores-per-task=21 --setopt=mpibind=off --setopt=cpu-affinity=per-task --setopt=exit-on-error --gpus-per-task=1 --setopt=gpu-affinity=per-task)
launch_per_node=(flux run --nodes=4 --ntasks=4 --cores-per-task=21 --setopt=mpibind=off --setopt=cpu-affinity=per-task --setopt=exit-on-error)
hpcbench=(hpcbench)
local_path="/tmp/hpcbench-${job_id}"

# One job and attempt at a time works in the run folder; another one ends here.
hold=$("${hpcbench[@]}" jobs --take "$job_id" --attempt "$attempt" --process "$$" \
    --scheduler flux --nodes 4 --mark hpcbench:me/cosmoflow:0badf00d "$run")
trap 'printf "%(%s)T %d\n" -1 "$?" > "$hold.end" || true' EXIT

echo "hpcbench: job $job_id, attempt $attempt, $(date)"
status=0
left_s=$((7080 - SECONDS))
[ "$left_s" -gt 0 ] || left_s=1
timeout --foreground --signal=USR1 --preserve-status "$left_s" "${launch[@]}" "${hpcbench[@]}" train cosmoflow --preset node --data.root=/project/me/data/cosmoflow \
    --check-job ranks=16,nodes=4,cores=21,gpus=1 \
    --run-dir "$run" --hold "$hold" --resume-or-start --parallel.threads 21 --staging.destination "$local_path" || status=$?

"${launch_per_node[@]}" "${hpcbench[@]}" stage --clean "$local_path" || true
"${launch_per_node[@]}" rmdir "$local_path" || true
resubmit() {
    cd "$run" || return
    local next="HPCBENCH_ATTEMPT=$((attempt + 1))"
    flux --parent batch --env="$next" --dependency=afterany:"$job_id" job.sh | tee "$hold.next"
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
