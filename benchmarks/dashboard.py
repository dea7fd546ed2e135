"""Picture of the dashboard: a run with a real broker, scraped by a real Prometheus, drawn from its answers.

    python -m benchmarks.dashboard --prometheus PATH [--protocol amqp] [--seconds 150] [--out FILE]

Starts Artemis, a consumer of 4 workers behind a proxy, and the Prometheus at PATH, which scrapes it each second. A
third of the run is normal work, in which one message in fifty is bad and one in ten fails once. Then a service that
handlers need is down, which opens the breaker. Then the connection to the broker is cut, and refused for a while.
matplotlib draws each panel of `examples/grafana/redelivery.json` from the answers of Prometheus to its queries.
Grafana is not used.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import re
import subprocess
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

from integration.brokers import BROKERS
from integration.brokers.ports import HOST, free_ports
from integration.proxy import LinkProxy
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from prometheus_client import CollectorRegistry, start_http_server

import redelivery
from redelivery.prometheus import Metrics

ROOT = Path(__file__).parents[1]
DASHBOARD = ROOT / "examples" / "grafana" / "redelivery.json"
CONFIGURATION = """
global: {scrape_interval: 1s}
scrape_configs:
  - job_name: orders
    static_configs: [{targets: ["HOST:PORT"]}]
"""
# Values of Grafana's variables.
VARIABLES = {"$__rate_interval": "10s", "[10m]": "[30s]", "$destination": ".*"}
# Messages sent a second; one in BAD is bad, one in UNSTEADY fails once.
RATE, BAD, UNSTEADY = 60, 50, 10
COLUMNS, CELL = 24, 0.62


class DatabaseDown(ConnectionError):
    """Error of a handler's database driver."""


class Work:
    """A handler, and a service that it needs."""

    def __init__(self) -> None:
        """Start with the service up."""
        self.down = False
        self.over = threading.Event()

    def handle(self, message: redelivery.Message) -> None:
        """Work for some milliseconds, and fail if the message is bad or the service is down."""
        number = int(message.text)
        time.sleep(random.expovariate(1 / 0.015))
        if self.down:
            raise DatabaseDown("connection refused")
        if number % BAD == 0:
            raise ValueError("no stock")
        if number % UNSTEADY == 1 and message.redelivery_count == 0:
            raise TimeoutError("slow")

    def send(self, uri: str, registry: CollectorRegistry) -> None:
        """Send until the run ends."""
        number = 0
        with redelivery.connect(uri, observers=[Metrics(registry)]) as connection:
            while not self.over.wait(1 / RATE):
                number += 1
                connection.send("orders", str(number))


def ask(port: int, path: str, **values: object) -> Any:
    """Ask Prometheus."""
    query = urllib.parse.urlencode(values)
    with urllib.request.urlopen(f"http://{HOST}:{port}/{path}?{query}", timeout=10) as answer:
        return json.load(answer)["data"]


def run(protocol: str, port: int, seconds: float) -> None:
    """Run the work, with an outage of a service and one of the connection."""
    work, registry = Work(), CollectorRegistry()
    server, _ = start_http_server(port, HOST, registry)
    errors = redelivery.Classifier().trip(DatabaseDown)
    with BROKERS["artemis"]() as broker, LinkProxy(broker.ports[protocol]) as proxy:
        sender = threading.Thread(target=work.send, args=(broker.uri(protocol=protocol), registry))
        options: Any = {"redelivery__credit": 100, "jms__redeliveryPolicy__maximumRedeliveries": 2}
        uri = broker.uri(protocol=protocol, port=proxy.port, **options)
        with redelivery.connect(uri, errors=errors, observers=[Metrics(registry)]) as connection:
            connection.listen("orders", work.handle, workers=4)
            connection.start()
            sender.start()
            time.sleep(seconds / 3)
            work.down = True
            time.sleep(seconds / 6)
            work.down = False
            time.sleep(seconds / 4)
            proxy.refuse()
            proxy.cut()
            time.sleep(seconds / 20)
            proxy.accept()
            time.sleep(seconds / 5)
            work.over.set()
            sender.join()
    server.shutdown()


def draw(axes: Any, panel: dict[str, Any], port: int, began: float, ended: float) -> None:
    """Draw a panel from the answers to its queries."""
    axes.set_title(panel["title"], fontsize=8, loc="left")
    for target in panel["targets"]:
        query = target["expr"]
        for name, value in VARIABLES.items():
            query = query.replace(name, value)
        for series in ask(port, "api/v1/query_range", query=query, start=began, end=ended, step=1)["result"]:
            label = target["legendFormat"]
            for name, value in series["metric"].items():
                label = label.replace(f"{{{{{name}}}}}", value)
            # An empty label is left out.
            label = re.sub(r"{{.*?}}", "", label)
            times = [at - began for at, _ in series["values"]]
            axes.plot(
                times, [float(value) for _, value in series["values"]], label=label.strip(), linewidth=1
            )
    axes.set_xlim(0, ended - began)
    axes.set_ylim(bottom=0)
    axes.tick_params(labelsize=6)
    axes.grid(alpha=0.3)
    if axes.lines:
        axes.legend(fontsize=5.5, loc="upper left", framealpha=0.6)


def picture(port: int, began: float, ended: float, out: Path, text: str) -> None:
    """Draw all panels in their places."""
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    figure: Any = Figure(figsize=(15, rows * CELL * 0.72), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(rows, COLUMNS)
    figure.suptitle(text, fontsize=9)
    for panel in panels:
        place = panel["gridPos"]
        down, right = slice(place["y"], place["y"] + place["h"]), slice(place["x"], place["x"] + place["w"])
        axes = figure.add_subplot(grid[down, right])
        if panel["type"] == "row":
            axes.axis("off")
            axes.text(0, 0, panel["title"], fontsize=10, weight="bold")
        else:
            draw(axes, panel, port, began, ended)
    figure.savefig(out)


def main() -> None:
    """Run, and draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--prometheus", required=True, metavar="PATH")
    parser.add_argument("--protocol", choices=("amqp", "stomp"), default="amqp")
    parser.add_argument("--seconds", type=float, default=150)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images" / "dashboard.png")
    given = parser.parse_args()
    logging.getLogger("redelivery").setLevel(logging.CRITICAL)
    metrics, port = free_ports(2)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "prometheus.yml"
        file.write_text(CONFIGURATION.replace("HOST", HOST).replace("PORT", str(metrics)), encoding="utf-8")
        process = subprocess.Popen(
            [given.prometheus, f"--config.file={file}", f"--storage.tsdb.path={folder}/data",
             f"--web.listen-address={HOST}:{port}", "--log.level=error"],
        )  # fmt: skip
        try:
            began = time.time()
            run(given.protocol, metrics, given.seconds)
            time.sleep(2)
            version = ask(port, "api/v1/status/buildinfo")["version"]
            found = ask(
                port, "api/v1/query_range", query="redelivery_connected", start=began, end=time.time(), step=1
            )
            began, ended = (found["result"][0]["values"][at][0] for at in (0, -1))
            given.out.parent.mkdir(parents=True, exist_ok=True)
            about = f"Artemis over {given.protocol.upper()}, scraped by Prometheus {version} each second"
            picture(
                port, began, ended, given.out, f"{about}; drawn by matplotlib, seconds from left to right"
            )
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)


if __name__ == "__main__":
    main()
