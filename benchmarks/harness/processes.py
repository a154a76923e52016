"""One measurement in a process of its own, with a limit on its time and memory."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

__all__ = ["ROOT", "run_worker", "time_command"]

ROOT = Path(__file__).resolve().parents[2]
WORKERS = ROOT / "benchmarks" / "workers"
_MARK = "RESULT "
_SPOILERS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PIP_CONSTRAINT", "PYTHONHOME")


def environment(own_code: bool, threads: int | None = None) -> dict[str, str]:
    """Variables of a worker: all cores unless told otherwise, and the checkout's package only where it is wanted."""
    variables = {name: value for name, value in os.environ.items() if name not in _SPOILERS}
    variables |= {"TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu", "MPLBACKEND": "Agg"}
    variables.pop("PYTHONPATH", None)
    if own_code:
        variables["PYTHONPATH"] = str(ROOT / "src")
    if threads is not None:
        variables |= {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    return variables


def run_worker(
    python: str, script: str, job: dict[str, Any], *, limit: float, memory: int, own_code: bool
) -> dict[str, Any]:
    """Run a worker and return its answer; ``error`` in it says what went wrong.

    Parameters
    ----------
    python : str
        Interpreter of the environment.
    script : str
        Name of the worker's file.
    job : dict
        Its argument.
    limit : float
        Seconds after which it is ended.
    memory : int
        Bytes with which it is ended.
    own_code : bool
        Whether it uses this checkout's package.
    """
    command = [python, str(WORKERS / script), json.dumps(job)]
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        start = time.perf_counter()
        variables = environment(own_code, job.get("threads"))
        process = subprocess.Popen(
            command, stdout=output, stderr=errors, env=variables, cwd=ROOT, start_new_session=True
        )
        peak, reason = _watch(process, start + limit, memory)
        wall = time.perf_counter() - start
        output.seek(0)
        errors.seek(0)
        printed, complaints = output.read(), errors.read()
    if reason is not None:
        return {"error": reason if reason != "time" else f"more than {limit:g} s", "peak_bytes": peak, "wall": wall}
    answers = [line for line in printed.splitlines() if line.startswith(_MARK)]
    if not answers:
        words = f"ended with code {process.returncode}: {(complaints.strip().splitlines() or ['nothing said'])[-1]}"
        return {"error": without_paths(words)[:300], "peak_bytes": peak, "wall": wall}
    answer: dict[str, Any] = json.loads(answers[-1].removeprefix(_MARK))
    if "error" in answer:
        answer["error"] = without_paths(answer["error"])
    return answer | {"wall": wall}


def _watch(process: subprocess.Popen[Any], deadline: float, memory: int) -> tuple[int, str | None]:
    """Wait for the end of a process; its peak memory, and why it was ended if it was."""
    peak = 0
    try:
        while True:
            try:
                process.wait(0.1)
            except subprocess.TimeoutExpired:
                held, highest = _memory_of(process.pid)
                peak = max(peak, highest)
                if held > memory:
                    return peak, "out of memory"
                if time.perf_counter() > deadline:
                    return peak, "time"
            else:
                killed = process.returncode == -signal.SIGKILL
                return peak, "out of memory" if killed else None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _memory_of(pid: int) -> tuple[int, int]:
    """Bytes that a process holds, and the most it ever held."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0, 0
    found = dict(re.findall(r"^(VmRSS|VmHWM):\s+(\d+)", status, re.MULTILINE))
    return int(found.get("VmRSS", 0)) * 1024, int(found.get("VmHWM", 0)) * 1024


def without_paths(words: str) -> str:
    """Words without the places of this machine."""
    return re.sub(r"(?:file:/|https?:/)?(?:/[\w.+-]+){2,}/?", "…", words)


def time_command(python: str, code: str, *, own_code: bool, extra: dict[str, str] | None = None) -> dict[str, Any]:
    """Wall time of ``python -c code``, the start of the interpreter included."""
    start = time.perf_counter()
    variables = environment(own_code) | (extra or {})
    done = subprocess.run([python, "-c", code], env=variables, cwd=ROOT, capture_output=True, text=True, check=False)
    wall = time.perf_counter() - start
    if done.returncode:
        return {"error": without_paths((done.stderr.strip().splitlines() or ["failed"])[-1])[:300]}
    return {"wall": wall}
