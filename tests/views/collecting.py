"""The other side of the exporters: a collector of OpenTelemetry's, and readers of TensorBoard's and W&B's files."""

from __future__ import annotations

import gzip
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest


class Collector:
    """A real HTTP server that decodes what it is sent with OpenTelemetry's own messages."""

    def __init__(self) -> None:
        metrics = pytest.importorskip("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2")
        logs = pytest.importorskip("opentelemetry.proto.collector.logs.v1.logs_service_pb2")
        kinds = {"/v1/metrics": metrics.ExportMetricsServiceRequest, "/v1/logs": logs.ExportLogsServiceRequest}
        self.gauges: list[tuple[dict[str, Any], dict[str, float]]] = []
        self.events: list[dict[str, Any]] = []
        self.units: dict[str, str] = {}
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
                collector._take(kinds[self.path].FromString(body))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def _take(self, message: Any) -> None:
        for of_resource in getattr(message, "resource_metrics", ()):
            found = {}
            for metric in (metric for scope in of_resource.scope_metrics for metric in scope.metrics):
                found[metric.name] = metric.gauge.data_points[0].as_double
                self.units[metric.name] = metric.unit
            self.gauges.append((_plain(of_resource.resource.attributes), found))
        for of_resource in getattr(message, "resource_logs", ()):
            resource = _plain(of_resource.resource.attributes)
            for record in (record for scope in of_resource.scope_logs for record in scope.log_records):
                facts = {"event": record.event_name, "body": record.body.string_value, "resource": resource}
                self.events.append({**_plain(record.attributes), **facts, "severity": record.severity_text})

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _plain(attributes: Any) -> dict[str, Any]:
    return {one.key: _value(one.value) for one in attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return [_value(one) for one in value.array_value.values] if kind == "array_value" else getattr(value, kind)


def event_file(folder: Path) -> tuple[dict[str, list[tuple[int, float]]], dict[str, list[str]]]:
    """Scalars by tag with their steps, and texts by tag, of TensorBoard's one file in a folder."""
    event = _message("Event")
    scalars: dict[str, list[tuple[int, float]]] = {}
    texts: dict[str, list[str]] = {}
    (path,) = folder.glob("events.out.tfevents.*")
    data, at = path.read_bytes(), 0
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        read = event.FromString(data[at + 12 : at + 12 + length])
        at += 16 + length
        for value in read.summary.value:
            if value.HasField("tensor"):
                texts.setdefault(value.tag, []).append(value.tensor.string_val[0].decode())
            else:
                scalars.setdefault(value.tag, []).append((read.step, value.simple_value))
    return scalars, texts


def _message(name: str) -> Any:
    """TensorFlow's messages, as far as they are read here, by the numbers in its event.proto and summary.proto."""
    pytest.importorskip("google.protobuf")
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    shapes = {
        "Tensor": [("string_val", 8, 12, 3, "")],
        "Value": [("tag", 1, 9, 1, ""), ("simple_value", 2, 2, 1, ""), ("tensor", 8, 11, 1, "Tensor")],
        "Summary": [("value", 1, 11, 3, "Value")],
        "Event": [("wall_time", 1, 1, 1, ""), ("step", 2, 3, 1, ""), ("summary", 5, 11, 1, "Summary")],
    }
    file = descriptor_pb2.FileDescriptorProto(name="events.proto", package="events", syntax="proto3")
    for shape, fields in shapes.items():
        message = file.message_type.add(name=shape)
        for field, number, kind, label, of in fields:
            made = message.field.add(name=field, number=number, type=kind, label=label)
            if of:
                made.type_name = f".events.{of}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"events.{name}"))


def wandb_stats(file: Path) -> list[dict[str, str]]:
    """The system metrics in the file of an offline run: leveldb's log around W&B's own messages."""
    from wandb.proto import wandb_internal_pb2

    data, at, part, found = file.read_bytes(), 7, b"", []
    while at + 7 <= len(data):
        room = 32768 - at % 32768
        if room < 7:
            at += room
            continue
        length, kind = struct.unpack_from("<HB", data, at + 4)
        part += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            record = wandb_internal_pb2.Record.FromString(part)
            part = b""
            if record.WhichOneof("record_type") == "stats":
                found.append({item.key: item.value_json for item in record.stats.item})
    return found
