"""OpenTelemetry: the numbers as gauges, findings and the ending as log events, to any collector over HTTP.

The standard OTEL_* variables say where to, with which headers, how often. The run is the resource: its id, its name,
its command and its host are attributes of all that is sent.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Iterable
from typing import Any

from holter.errors import NotInstalled
from holter.views.export import Moment, News, Run

_SENDS_EVERY_S = 60.0  # seconds between two sendings where OTEL_METRIC_EXPORT_INTERVAL does not say
_TIMEOUT = 2.5  # seconds for one sending where OTEL_EXPORTER_OTLP_TIMEOUT does not say; two are made at the end
_UNITS = {"bytes": "By", "seconds": "s", "percent": "%", "second": "1/s"}


class Exporter:
    """Sends with the SDK's own exporters, by hand: the loop that reads the record is the clock."""

    def __init__(self, run: Run, report: Callable[[str], None]) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
            from opentelemetry.sdk._logs import LoggerProvider
            from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
            from opentelemetry.sdk.metrics import MeterProvider
            from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
            from opentelemetry.sdk.resources import Resource
        except ImportError as error:
            raise NotInstalled(f"OpenTelemetry is not installed ({error})", "pip install 'holter[otel]'") from None
        # Its own words are not for the terminal of a training: what fails is told once, by us, with its reason.
        self._words = _Words()
        logging.getLogger("opentelemetry").addHandler(self._words)
        logging.getLogger("opentelemetry").propagate = False
        self._run, self._report = run, report
        self._values: dict[str, float] = {}
        self._due, self._each = 0.0, _each()
        self._reported = False
        resource = Resource.create(_attributes(run))
        timeout = {} if "OTEL_EXPORTER_OTLP_TIMEOUT" in os.environ else {"timeout": _TIMEOUT}
        metrics, logs = OTLPMetricExporter(**timeout), OTLPLogExporter(**timeout)
        for exporter in (metrics, logs):
            _overheard(exporter, self._failed)
        self._reader = PeriodicExportingMetricReader(metrics, export_interval_millis=math.inf)
        self._meters = MeterProvider([self._reader], resource=resource, shutdown_on_exit=False)
        self._logs = LoggerProvider(resource=resource, shutdown_on_exit=False)
        self._logs.add_log_record_processor(BatchLogRecordProcessor(logs))
        self._logger = self._logs.get_logger("holter")
        self._where = str(getattr(metrics, "_endpoint", "")) or "the collector"
        meter = self._meters.get_meter("holter")
        for name, meaning in run.meanings.items():
            unit = _UNITS.get(name.rpartition("_")[2], "1")
            meter.create_observable_gauge(f"holter_run_{name}", [self._reading(name)], unit, meaning)

    def numbers(self, moment: Moment) -> None:
        self._values = dict(moment.values)
        if time.monotonic() >= self._due and len(self._values) > 1:
            self._due = time.monotonic() + self._each
            self._reader.collect()

    def news(self, item: News) -> None:
        from opentelemetry._logs import LogRecord, SeverityNumber

        number, word = (SeverityNumber.INFO, "INFO") if item.facts.get("healthy") else (SeverityNumber.WARN, "WARN")
        facts = {f"holter.{name}": value for name, value in item.facts.items() if value not in ("", None)}
        code = {
            "holter.file": "code.file.path",
            "holter.line": "code.line.number",
            "holter.function": "code.function.name",
        }
        self._logger.emit(
            LogRecord(
                timestamp=int(item.t * 1e9), severity_number=number, severity_text=word, body=item.text,
                attributes={code.get(name, name): value for name, value in facts.items()},
                event_name=f"holter.{item.kind}",
            )
        )  # fmt: skip

    def close(self) -> None:
        """What is known last, once more and at once."""
        self._reader.collect()
        self._logs.force_flush()
        self._logs.shutdown()

    def _reading(self, name: str) -> Callable[[Any], Iterable[Any]]:
        from opentelemetry.metrics import Observation

        def read(_options: Any) -> Iterable[Any]:
            return [Observation(self._values[name])] if name in self._values else []

        return read

    def _failed(self) -> None:
        if not self._reported:
            self._reported = True
            why = f" ({self._words.last})" if self._words.last else ""
            cure = "Set OTEL_EXPORTER_OTLP_ENDPOINT to the HTTP port of a collector"
            self._report(f"{self._where} rejects what is sent{why}. {cure}")


class _Words(logging.Handler):
    """The last thing that the SDK complained of."""

    last = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.last = " ".join(record.getMessage().split())[:200].rstrip(".")


def _overheard(exporter: Any, failed: Callable[[], None]) -> None:
    """Hear what the exporter returns: it tells failures to its log alone."""
    export = exporter.export

    def heard(*arguments: Any, **options: Any) -> Any:
        result = export(*arguments, **options)
        if getattr(result, "name", "") == "FAILURE":
            failed()
        return result

    exporter.export = heard


def _attributes(run: Run) -> dict[str, Any]:
    named = "service.name" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "") or "OTEL_SERVICE_NAME" in os.environ
    return {
        **({} if named else {"service.name": "holter"}),
        "service.instance.id": run.id,
        "host.name": run.host,
        "process.command_args": list(run.command),
        "holter.run.id": run.id,
        "holter.run.name": run.name,
    }


def _each() -> float:
    try:
        return max(1.0, float(os.environ["OTEL_METRIC_EXPORT_INTERVAL"]) / 1000)
    except (KeyError, ValueError):
        return _SENDS_EVERY_S
