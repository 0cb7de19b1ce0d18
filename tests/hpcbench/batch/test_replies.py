"""What a scheduler says of a job that it refuses, and what leaves open whether it has taken it."""

from __future__ import annotations

import pytest

from hpcbench.batch.scheduler import Reply
from hpcbench.batch.schedulers import SCHEDULERS

REFUSALS = {
    "slurm": ["sbatch: error: Batch job submission failed: Invalid account", "sbatch: error: invalid partition: gpu",
              "sbatch: error: invalid partition specified: standby", "sbatch: error: Invalid feature: interconnect",
              "sbatch: error: QOS standby: jobs in standby take at most 4 hours", "sbatch: error: no account: insane",
              "sbatch: error: account communications-lab may not use reservation temporarily-large",
              "sbatch: fatal: --mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive."],
    "pbs": ["qsub: Unknown queue", "qsub: would exceed queue generic's per-user limit",
            "qsub: Unknown queue interconnect", "qsub: Access to queue communication-lab is denied",
            "qsub: would exceed queue timeout's per-user limit"],
    "lsf": ["High-priority: No such queue. Job not submitted.", "Pending job threshold reached. Job not submitted.",
            "interconnect: No such queue. Job not submitted.", "daemons: No such queue. Job not submitted.",
            "timeout: User cannot use the queue. Job not submitted."],
    "flux": ["flux-batch: ERROR: [Errno 22] Invalid queue: gpu",
             "usage: flux batch [OPTIONS...] COMMAND\nflux-batch: error: unrecognized arguments: --bank",
             *(f"flux-batch: ERROR: [Errno 22] Invalid queue: {queue}" for queue in ("interconnect", "broker"))],
    "local": ["bash: setsid: command not found"],
}  # fmt: skip
"""What schedulers say, with a code other than 0, of jobs that no queue has."""
LOST = {
    "slurm": ["sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
              "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
              "sbatch: error: Batch job submission failed: Zero Bytes were transmitted or received", "",
              *(f"sbatch: error: Batch job submission failed: {words}" for words in (
                  "Slurm backup controller in standby mode", "Communication connection failure", "Broken pipe",
                  "Communications shutdown failure", "Insane message length", "Unexpected message received",
                  "Connection reset by peer", "Transport endpoint is not connected", "Message send failure",
                  "Resource temporarily unavailable", "Unable to connect to controller")),
              "/usr/local/bin/sbatch: line 3: error: no space left on device", "error: no account",
              "sbatch: fatal: Unable to contact slurm controller (connect failure)"],
    "pbs": ["qsub: cannot connect to server pbs (errno=111)", "Connection timed out", "qsub: End of File", "",
            "Connection refused", "No server is running", "Communication failure.", "errno=15010",
            "qsub: Premature end of message", "qsub: Time out", "Unable to communicate with server1(192.168.0.1)",
            "/usr/local/bin/qsub: line 3: tee: command not found", "warning: project of qsub: none"],
    "lsf": ["", *(f"{words} Job not submitted." for words in (
                "LSF is down. Please wait ...", "batch daemon not responding ... still trying", "Connection refused.",
                "Timeout on connect call to server.", "Master batch daemon internal error.", "LIM is down; try later.",
                "Batch daemon cannot fork.", "Communication time out.", "Failed in sending the request.")),
            "/usr/local/bin/bsub: line 3: tee: command not found"],
    "flux": ["flux-batch: ERROR: Unable to connect to Flux: broker socket: No such file or directory", "",
             "flux-batch: ERROR: lost connection to broker", "flux-batch: ERROR: [Errno 110] Connection timed out",
             "flux-batch: ERROR: Lost connection to Flux", "/usr/local/bin/flux: line 3: tee: command not found"],
}  # fmt: skip
"""What they say, or a site's script in place of their command, where the job may be in the queue."""
PBS_CODES = {153: "qsub: Unknown Job Id 17.server", 170: "qsub: Unknown queue", 188: "qsub: Job rejected by hook"}
"""Codes of ``qsub``: its error numbers, which begin at 15001, modulo 256."""
SIGNALLED = [-9, -15, -2, *(128 + number for number in (1, 2, 3, 6, 9, 11, 13, 15))]
"""Codes of commands that a signal has ended: as Python gives them, and as a shell that called the command does."""


@pytest.mark.parametrize(("name", "words"), [(name, words) for name, said in REFUSALS.items() for words in said])
def test_what_is_a_refusal(name: str, words: str) -> None:
    assert SCHEDULERS[name].is_refusal(Reply(1, "", words))
    assert not SCHEDULERS[name].is_refusal(Reply(None, "", words))


@pytest.mark.parametrize(("name", "words"), [(name, words) for name, said in LOST.items() for words in said])
def test_what_is_no_refusal(name: str, words: str) -> None:
    assert not SCHEDULERS[name].is_refusal(Reply(1, "", words))


@pytest.mark.parametrize("code", SIGNALLED)
@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_command_that_was_killed_has_refused_nothing(name: str, code: int) -> None:
    for words in (*REFUSALS[name], "line 3: 12 Killed", ""):
        assert not SCHEDULERS[name].is_refusal(Reply(code, "", words))


@pytest.mark.parametrize(("code", "words"), PBS_CODES.items())
def test_the_error_numbers_of_qsub_are_no_signals(code: int, words: str) -> None:
    assert SCHEDULERS["pbs"].is_refusal(Reply(code, "", words))


@pytest.mark.parametrize("words", REFUSALS["lsf"])
def test_the_code_of_bsub_is_no_signal(words: str) -> None:
    assert SCHEDULERS["lsf"].is_refusal(Reply(255, "", words))
