#!/bin/bash
#SBATCH --job-name=hpcbench
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --time=01:00:00
#SBATCH --signal=SIGUSR1@120
#
# Usage: sbatch [sbatch options] slurm.sh APP PRESET DATA_ROOT [settings of hpcbench train]
# Set --ntasks-per-node to the accelerators of a node; on CPUs to 1, or to the number of sockets.
set -euo pipefail

app=$1
preset=$2
data=$3
shift 3

# A folder on node-local storage: the site's own, or /tmp.
local=${NODE_LOCAL:-${TMPDIR:-/tmp}}/hpcbench-${SLURM_JOB_ID}
run="runs/${app}-${preset}-${SLURM_JOB_ID}"

srun --kill-on-bad-exit=1 hpcbench train "$app" --preset "$preset" --data.root "$data" \
    --staging.destination "$local/$app" --run-dir "$run" "$@"
