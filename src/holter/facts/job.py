"""Which job a process belongs to and which of its ranks it is, from the variables that launchers set.

A `key` names the job alike in all of its ranks, on every machine: what a scheduler or torchrun calls it, else the
address where its ranks meet. Values are numbers and names; nothing of the environment but these variables is read.
"""

import json
from collections.abc import Mapping
from typing import Any

# Launcher, how many ranks, which one, which on its machine, which machine.
_LAUNCHERS = (
    ("torchrun", "WORLD_SIZE", "RANK", "LOCAL_RANK", "GROUP_RANK"),
    ("mpi", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_NODE_RANK"),
    ("mpi", "PMI_SIZE", "PMI_RANK", "MPI_LOCALRANKID", ""),
    ("slurm", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID"),
    ("jax", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "", ""),
)
_PODS = ("POD_NAME", "HOSTNAME")
_LONGEST = 120  # letters of a name


def ranks_in(environ: Mapping[str, str]) -> tuple[int, int]:
    """How many ranks there are and the number of this one; (1, 0) where no launcher says so."""
    for _, size, rank, _, _ in _LAUNCHERS:
        if _number(environ, size) > 1:
            return _number(environ, size), _number(environ, rank)
    workers, index = _tensorflow(environ)
    return max(1, len(workers)), index


def job_of(environ: Mapping[str, str]) -> dict[str, Any]:
    """The facts of the job as the fields of a record; {} for a process that no launcher has numbered."""
    found: dict[str, Any] = {}
    for name, size, rank, local, node in _LAUNCHERS:
        if _number(environ, size) > 0 and environ.get(rank, "").isdigit():
            found = {"launcher": name, "rank": _number(environ, rank), "world": _number(environ, size)}
            found.update({key: _number(environ, var) for key, var in (("local_rank", local), ("node", node))
                          if environ.get(var, "").isdigit()})  # fmt: skip
            break
    workers, index = _tensorflow(environ)
    if not found and len(workers) > 1:
        found = {"launcher": "tensorflow", "rank": index, "world": len(workers)}
    key = _key(environ, workers)
    if not found and not key:
        return {}
    if found.get("launcher") == "torchrun" and "TORCHELASTIC_RUN_ID" not in environ:
        found["launcher"] = "slurm" if "SLURM_JOB_ID" in environ else "environment"
    if environ.get("TORCHELASTIC_RESTART_COUNT", "").isdigit():
        found["restart"] = _number(environ, "TORCHELASTIC_RESTART_COUNT")
    if key:
        found["key"] = key[:_LONGEST]
    if "KUBERNETES_SERVICE_HOST" in environ:
        pod = next((environ[name] for name in _PODS if environ.get(name)), "")
        found.update({"pod": pod[:_LONGEST]} if pod else {})
    return found


def _key(environ: Mapping[str, str], workers: list[Any]) -> str:
    run = environ.get("TORCHELASTIC_RUN_ID", "")
    if run and run != "none":  # which is what torchrun calls each job that it was given no name for
        return "torchrun:" + run
    if environ.get("SLURM_JOB_ID"):
        step = environ.get("SLURM_STEP_ID", "")
        return "slurm:" + environ["SLURM_JOB_ID"] + ("." + step if step else "")
    if environ.get("RAY_JOB_ID"):
        return "ray:" + environ["RAY_JOB_ID"]
    if environ.get("PMIX_NAMESPACE"):
        return "mpi:" + environ["PMIX_NAMESPACE"]
    if environ.get("JAX_COORDINATOR_ADDRESS"):
        return "jax:" + environ["JAX_COORDINATOR_ADDRESS"]
    if environ.get("MASTER_ADDR") and environ.get("MASTER_PORT") and "RANK" in environ:
        return environ["MASTER_ADDR"] + ":" + environ["MASTER_PORT"]
    return "tensorflow:" + str(workers[0]) if len(workers) > 1 else ""


def _tensorflow(environ: Mapping[str, str]) -> tuple[list[Any], int]:
    """The workers as TensorFlow's strategies know of each other, and the number of this one."""
    try:
        config = json.loads(environ.get("TF_CONFIG") or "{}")
        return list(config["cluster"]["worker"]), int(config["task"]["index"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return [], 0


def _number(environ: Mapping[str, str], name: str) -> int:
    try:
        return int(environ.get(name) or 0)
    except ValueError:
        return 0
