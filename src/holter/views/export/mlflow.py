"""MLflow: metrics by step on the run that the user's script has begun, and findings as its tags.

MLflow puts the tags in MLFLOW_RUN_CONTEXT on every run that is started, so the command is started with a tag of ours
there and its runs are found by it, in whatever store: nothing is guessed, and no run of others is ever written to. The
store is that of MLFLOW_TRACKING_URI in the command's processes, or what MLflow takes without it: `mlruns` or
`mlflow.db` in the folder. One that the script sets itself can't be seen from outside, unless it is a SQLite file, which
is held open.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import sqlite3
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from holter.errors import NotInstalled, UsageError
from holter.views.export import Moment, News, Run, Ticket

WHERE = "the id of an MLflow run"

_VARIABLE = "MLFLOW_RUN_CONTEXT"
_MARK = "holter.mark"
_WAITING = 500  # moments that are kept until the run is known
_MAX_CHARACTERS = 5000  # characters of a tag


def environment(ticket: Ticket, base: Mapping[str, str]) -> dict[str, str]:
    """The user's own tags, and ours."""
    try:
        return {_VARIABLE: json.dumps({**json.loads(base.get(_VARIABLE) or "{}"), _MARK: ticket.mark})}
    except (ValueError, TypeError):
        raise UsageError(f"{_VARIABLE} is not a JSON object", "Give it names and values, or unset it") from None


class Exporter:
    """Writes through MLflow's own client, once there is a store with a run of this command in it."""

    def __init__(self, run: Run, report: Callable[[str], None]) -> None:
        if importlib.util.find_spec("mlflow") is None:
            raise NotInstalled("MLflow is not installed beside Holter", "pip install mlflow-skinny")
        logging.getLogger("mlflow").setLevel(logging.ERROR)
        self._run, self._report = run, report
        self._client: Any = None
        self._target = ""
        self._uri = ""
        self._pids: set[int] = set()
        self._waiting: deque[Moment] = deque(maxlen=_WAITING)

    def numbers(self, moment: Moment) -> None:
        self._pids.update(moment.pids)
        self._waiting.append(moment)
        if not self._found():
            return
        from mlflow.entities import Metric

        while self._waiting:
            one = self._waiting[0]  # kept until it has been taken
            numbers = [
                Metric(f"holter/{name}", value, int(one.t * 1000), one.step or 0)
                for name, value in sorted(one.values.items())
                if name != "step"  # it is the axis
            ]
            self._client.log_batch(self._target, metrics=numbers)
            self._waiting.popleft()

    def news(self, item: News) -> None:
        """The ending, each finding by its place, and what was last told while the run was on."""
        if not self._target:
            return
        name = f"holter.{item.kind}"
        if "number" in item.facts:
            name += f".{item.facts['number']}"
        line = f" [{item.facts['file']}:{item.facts['line']}]" if item.facts.get("line") else ""
        cause = f"{item.facts['cause']} ({item.facts['grade']}): " if item.facts.get("cause") else ""
        self._client.set_tag(self._target, name, f"{cause}{item.text}{line}"[:_MAX_CHARACTERS])

    def close(self) -> None:
        if not self._target:
            self._report(
                "no MLflow run of this command was found. Where the script sets its own tracking store, "
                "set MLFLOW_TRACKING_URI to it"
            )

    def _found(self) -> bool:
        """The newest run of this command that is on, or else the newest: folds may follow one another."""
        if self._run.where:
            stores = self._candidates() if self._client is None else []
            self._client = self._client_at(stores[0]) if stores else self._client
            self._target = self._run.where if self._client is not None else ""
            return self._client is not None
        if self._target and self._client.get_run(self._target).info.status == "RUNNING":
            return True
        for uri in [self._uri] if self._uri else self._candidates():
            client = self._client or self._client_at(uri)
            every = [one.experiment_id for one in client.search_experiments()]
            order = ["attributes.start_time DESC"]
            runs = client.search_runs(every, f"tags.`{_MARK}` = '{self._run.mark}'", order_by=order, max_results=50)
            # A child of a sweep is the sweep's: the numbers are of the whole command.
            tops = [run for run in runs if "mlflow.parentRunId" not in run.data.tags] or list(runs)
            chosen = next((run for run in tops if run.info.status == "RUNNING"), tops[0] if tops else None)
            if chosen is not None:
                self._client, self._uri, self._target = client, uri, chosen.info.run_id
                return True
        return bool(self._target)

    def _candidates(self) -> list[str]:
        """Stores that are there; one that is not is never made, nor one touched that is being made."""
        found = []
        processes = self._run.processes
        for pid in sorted(self._pids) if processes is not None else ():
            assert processes is not None
            found.append(processes.environ_of(pid).get("MLFLOW_TRACKING_URI", ""))
            found += [f"sqlite:///{path}" for path in processes.open_files(pid) if path.endswith((".db", ".sqlite"))]
        found += [os.environ.get("MLFLOW_TRACKING_URI", ""), f"sqlite:///{self._run.folder}/mlflow.db"]
        found.append(f"file://{self._run.folder}/mlruns")
        return [uri for uri in dict.fromkeys(found) if uri and _is_there(uri)]

    def _client_at(self, uri: str) -> Any:
        from mlflow import MlflowClient

        return MlflowClient(tracking_uri=uri)


def _is_there(uri: str) -> bool:
    if uri.startswith("sqlite:///"):
        try:
            path = quote(uri.removeprefix("sqlite:///"))
            with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=1.0)) as store:
                return bool(store.execute("select count(*) from runs").fetchone()[0])
        except sqlite3.Error:
            return False
    if uri.startswith(("http:", "https:", "databricks", "postgresql", "mysql", "mssql")):
        return True
    return any(Path(uri.removeprefix("file://")).glob("*/meta.yaml"))
