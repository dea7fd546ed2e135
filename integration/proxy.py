"""A TCP proxy in front of a broker, by which a test cuts, stalls, delays and refuses connections."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Literal, TypeVar

from integration.brokers.ports import HOST, free_ports
from integration.links import Cut, Link, Pump, Rule, Way
from integration.running import Running

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any, Self

T = TypeVar("T")
Direction = Literal["to_broker", "to_client"]
_BOTH: tuple[Direction, ...] = ("to_broker", "to_client")


class LinkProxy(Running):
    """Forwards connections to a broker, in a thread of its own. Every control may be called from any thread.

    `opaque=True` for TLS: the proxy then looks for no frames.
    """

    host = HOST

    def __init__(self, target_port: int, target_host: str = HOST, *, opaque: bool = False) -> None:
        """Choose a port; nothing listens before `start()`."""
        (self.port,) = free_ports(1)
        self.links = 0  # open now
        self.links_ever = 0
        self.cuts = 0  # links that a control has ended
        self._target = (target_host, target_port)
        self._opaque = opaque
        self._open: set[Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="link-proxy", daemon=True)
        self.to_broker = Way()
        self.to_client = Way()
        self.resume()

    def start(self) -> Self:
        """Listen."""
        self._thread.start()
        self.accept()
        return self

    def close(self) -> None:
        """End every connection and stop listening."""
        self._run(self._shut())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def way(self, direction: Direction) -> Way:
        """The counters of one direction."""
        return self.to_broker if direction == "to_broker" else self.to_client

    def cut(self, *, reset: bool = True) -> int:
        """End every connection now, with RST (or FIN), and return their number; new ones are accepted."""
        return self._call(lambda: sum([self._cut(link, reset=reset) for link in list(self._open)]))

    def cut_after_frames(
        self,
        direction: Direction,
        count: int,
        *,
        command: str | None = None,
        forward_last: bool = True,
        reset: bool = False,
    ) -> None:
        """Cut the connection exactly after the `count`-th frame from now; once.

        With `command`, only frames of that command count. `forward_last=False` drops that last frame.
        """
        rule = Rule(count, command, reset, forward_last)
        self._call(lambda: setattr(self.way(direction), "after_frames", rule))

    def cut_after_bytes(self, direction: Direction, count: int, *, reset: bool = False) -> None:
        """Cut the connection exactly after the `count`-th byte from now; once."""
        rule = Rule(count, None, reset, forward_last=True)
        self._call(lambda: setattr(self.way(direction), "after_bytes", rule))

    def drop_half_frame(self, direction: Direction, count: int = 1, *, reset: bool = False) -> None:
        """Forward the first half of the `count`-th frame that begins from now, then cut; once."""
        rule = Rule(count, None, reset, forward_last=True)
        self._call(lambda: setattr(self.way(direction), "half", rule))

    def disarm(self) -> None:
        """Remove the rules that wait for a frame or a byte."""
        for one in _BOTH:
            way = self.way(one)
            way.after_frames = way.after_bytes = way.half = None

    def stall(self, direction: Direction | None = None) -> None:
        """Read bytes and forward none, in one direction or both, until `resume()`; the bytes are kept."""
        for one in (direction,) if direction else _BOTH:
            self._call(self.way(one).flowing.clear)

    def resume(self, direction: Direction | None = None) -> None:
        """Forward again, beginning with the kept bytes."""
        for one in (direction,) if direction else _BOTH:
            self._call(self.way(one).flowing.set)

    def delay(self, seconds: float, direction: Direction | None = None) -> None:
        """Forward later bytes with a delay of `seconds`."""
        for one in (direction,) if direction else _BOTH:
            self.way(one).delay = seconds

    def narrow(self, rate: float, direction: Direction | None = None) -> None:
        """Forward later bytes at `rate` bytes a second; 0: as fast as they come."""
        for one in (direction,) if direction else _BOTH:
            self.way(one).rate = rate

    def refuse(self) -> None:
        """Refuse new connections (no socket listens); open ones continue."""
        self._run(self._listen(on=False))

    def accept(self) -> None:
        """Listen again, on the same port."""
        self._run(self._listen(on=True))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30.0)

    def _call(self, action: Callable[[], T]) -> T:
        async def act() -> T:
            return action()

        return self._run(act()) if self._thread.is_alive() else action()

    async def _listen(self, *, on: bool) -> None:
        if on and self._server is None:
            self._server = await asyncio.start_server(self._link, self.host, self.port, backlog=200)
        elif not on and self._server is not None:
            self._server.close()
            self._server = None

    async def _shut(self) -> None:
        await self._listen(on=False)
        for link in list(self._open):
            link.close(reset=True)
        waiting = [task for task in self._tasks if task is not asyncio.current_task()]
        if waiting:
            await asyncio.wait(waiting, timeout=10.0)

    def _cut(self, link: Link, *, reset: bool) -> int:
        if link.closed.is_set():
            return 0
        link.close(reset=reset)
        self.cuts += 1
        return 1

    async def _link(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            answers, broker = await asyncio.open_connection(*self._target)
        except OSError:
            client.close()
            return
        link = Link(client, broker)
        self._open.add(link)
        self.links += 1
        self.links_ever += 1
        ends = [self._forward(link, reader, broker, self.to_broker)]
        ends += [self._forward(link, answers, client, self.to_client)]
        await asyncio.gather(*ends)
        link.close(reset=False)
        self._open.discard(link)
        self.links -= 1

    async def _forward(
        self, link: Link, source: asyncio.StreamReader, sink: asyncio.StreamWriter, way: Way
    ) -> None:
        kept: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        reading = asyncio.ensure_future(self._read(source, kept, way))
        try:
            await Pump(link, sink, way, opaque=self._opaque).run(kept)
        except Cut as cut:
            self._cut(link, reset=cut.reset)
        except OSError:
            link.close(reset=False)
        finally:
            reading.cancel()

    async def _read(
        self, source: asyncio.StreamReader, kept: asyncio.Queue[tuple[float, bytes]], way: Way
    ) -> None:
        data = b"first"
        while data:
            try:
                data = await source.read(65536)
            except OSError:
                data = b""
            kept.put_nowait((self._loop.time() + way.delay, data))
