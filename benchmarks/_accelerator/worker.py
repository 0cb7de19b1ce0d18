"""The measuring process: it reads a line of JSON for each measurement on standard input, and answers on the output."""

from __future__ import annotations

import gc
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

from _accelerator.answers import Say, SkipMeasurementError


def serve(smoke: bool) -> None:
    """Make measurements until the input ends. What libraries print goes to standard error."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    machine_said = False
    for line in sys.stdin:
        asked = json.loads(line)

        def say(part: Any) -> None:
            print(json.dumps({"part": part}), file=out, flush=True)

        answer = answer_to(asked["kind"], asked["settings"], smoke, say)
        if not machine_said:
            answer["machine"], machine_said = machine_facts(), True
        print(json.dumps(answer), file=out, flush=True)


def answer_to(kind: str, settings: dict[str, Any], smoke: bool, say: Say) -> dict[str, Any]:
    """Measure; an error is an answer, too, and ends this process if the device may no longer be usable."""
    try:
        return {"status": "measured", "result": measurement(kind)(settings, smoke, say)}
    except SkipMeasurementError as reason:
        return {"status": "skipped", "reason": str(reason)}
    except BaseException as error:
        out_of_memory = type(error).__name__ == "OutOfMemoryError"
        lines = traceback.format_exception(error)
        fatal = not isinstance(error, Exception) or ("CUDA" in str(error) and not out_of_memory)
        reason = f"{type(error).__name__}: {error}"[:2000]
        answer = {"status": "failed", "reason": reason, "traceback": "".join(lines)[-3000:], "fatal": fatal}
        sys.stderr.write("".join(lines))
    finally:
        clear()
    return answer


def measurement(kind: str) -> Callable[[dict[str, Any], bool, Say], dict[str, Any]]:
    """Return the function that makes measurements of a kind; its module is imported only now."""
    if kind == "pytest":
        from _accelerator.gpu_tests import run_file

        return run_file
    if kind in ("step", "loop"):
        from _accelerator import training

        return {"step": training.step, "loop": training.loop}[kind]
    from _accelerator import others

    return others.KINDS[kind]


def clear() -> None:
    """Free what a measurement has left on the device."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()


def machine_facts() -> dict[str, Any]:
    """Return the facts that only a process with torch knows."""
    import torch
    from _common import machine

    facts = machine()
    versions = {"torch": torch.__version__, "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}
    return {"accelerators": facts["accelerators"], "libraries": versions}
