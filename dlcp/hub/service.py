"""Accepts ranks and keeps jobs: one thread per control connection, and a bound on everything.

A job is here while one of its ranks has a connection. A rank that leaves without a word leaves its groups open for a
while, so that the ranks that wait for it learn from the cores who is missing; then the job and its memory are gone, and
no other job has noticed. One of the same name that comes meanwhile and finds no memory has its place at once.

The first job of a name has a place, unless the file of keys has more names than there is memory for: a further job of a
name takes what is left beside a place for each name that has no job here.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from dlcp.checks import integer
from dlcp.errors import DlcpError, HubError, ResourceError
from dlcp.hub.job import ServedJob
from dlcp.transport.closeable import Closeable
from dlcp.transport.hub.client import CORES_MAX
from dlcp.transport.hub.control import ControlError, HubControl
from dlcp.transport.settings import Settings

logger = logging.getLogger("dlcp")

CONNECTIONS_MAX = 1024
"""Control connections of ranks at a time; more are refused at once."""
STRANGERS_MAX = 256
"""Connections of which nobody knows yet whether they have a key. Of more the oldest is ended: ranks are quick."""
_HANDSHAKE_TIMEOUT_S = 10.0
# Until a connection is accepted after the host could not: it may lack descriptors or threads.
_ACCEPT_PAUSE_S = 0.2
# Log lines about strangers, of whom there may be any number: so many in any so long.
_NOTES_MAX, _NOTES_S = 20, 60.0
# What reading a request raises that is none: something is missing, or of another type.
_MALFORMED = (KeyError, TypeError, ValueError)


class HubService(Closeable):
    """A hub. Open until close(); serves from threads of its own.

    `host`: the address that ranks reach, for connections and packets alike. `port`: of control connections, TCP; 0:
    any free one. `keys`: what admits a job, by name. `cores`: endpoints per job, each with its thread.
    `memory_bytes`: for all jobs; `job_memory_bytes`: reserved for each. `settings`: of the cores' endpoints.
    Raises ArgumentError, ResourceError. `vml_square_root`: as of Core.
    """

    def __init__(
        self,
        host: str,
        port: int,
        keys: Mapping[str, bytes],
        *,
        cores: int,
        memory_bytes: int,
        job_memory_bytes: int,
        settings: Settings | None = None,
        vml_square_root: int | None = None,
    ) -> None:
        self._cores = integer("cores", cores, 1, CORES_MAX)
        self._memory_bytes = integer("memory_bytes", memory_bytes, 1)
        self._job_memory_bytes = integer("job_memory_bytes", job_memory_bytes, 1, memory_bytes)
        self._keys = keys
        self._vml_square_root = vml_square_root
        self._settings = (Settings.load() if settings is None else settings).replace(bind_host=host, hub=None)
        self._lock = threading.Lock()
        self._jobs: dict[tuple[str, int], ServedJob] = {}
        self._streams: set[socket.socket] = set()
        # Of them those that have proved nothing, the oldest first.
        self._strangers: dict[socket.socket, None] = {}
        self._serving: set[threading.Thread] = set()
        self._noted_s: deque[float] = deque()
        self._closed = False
        self._ending = threading.Event()
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            self._listener = socket.create_server((host, port), family=family, backlog=128)
        except OSError as error:
            raise ResourceError(f"the hub cannot listen at {host}:{port}: {error}") from error
        self.port: int = self._listener.getsockname()[1]
        """Of control connections."""
        self.address = f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"
        """What ranks have as the setting hub."""
        self._thread = threading.Thread(target=self._accept, name="dlcp-hub", daemon=True)
        self._thread.start()

    @property
    def closed(self) -> bool:
        """Whether it has been closed."""
        return self._closed

    @property
    def jobs(self) -> list[str]:
        """The names of the jobs that are here."""
        with self._lock:
            return [name for name, _ in self._jobs]

    def close(self) -> None:
        """Ends all connections and jobs: their ranks learn that the hub is gone. Again: nothing."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._ending.set()
            streams, jobs = list(self._streams), list(self._jobs.values())
            self._jobs.clear()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for job in jobs:  # before ranks lose their connections, so that they hear of it from the cores
            job.close()
        for stream in streams:
            with contextlib.suppress(OSError):
                stream.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        # A thread that is still in native code when the interpreter ends would end the process by a signal.
        with self._lock:
            serving = list(self._serving)
        for thread in serving:
            thread.join(_HANDSHAKE_TIMEOUT_S)

    # ---- connections ----

    def _accept(self) -> None:
        while True:
            try:
                stream, peer = self._listener.accept()
            except OSError:
                if self._closed:
                    return
                logger.exception("hub: a connection was lost before it was accepted")
                self._ending.wait(_ACCEPT_PAUSE_S)
                continue
            if not self._admit(stream):
                self._note(f"hub: {peer[0]} is refused: {CONNECTIONS_MAX} ranks are connected")
                stream.close()
                continue
            thread = threading.Thread(
                target=self._serve, args=(stream, peer[0]), name="dlcp-hub-rank", daemon=True
            )
            try:
                thread.start()
            except RuntimeError:
                logger.exception("hub: %s is refused", peer[0])
                self._forget(stream)
                self._ending.wait(_ACCEPT_PAUSE_S)

    def _admit(self, stream: socket.socket) -> bool:
        """Counts a connection, as a stranger's; another stranger's may end for it. False: there are too many ranks."""
        with self._lock:
            if self._closed or len(self._streams) - len(self._strangers) >= CONNECTIONS_MAX:
                return False
            if len(self._strangers) >= STRANGERS_MAX:
                oldest = next(iter(self._strangers))
                del self._strangers[oldest]
                with contextlib.suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)  # its thread closes it
            self._streams.add(stream)
            self._strangers[stream] = None
            return True

    def _forget(self, stream: socket.socket) -> None:
        with self._lock:
            self._streams.discard(stream)
            self._strangers.pop(stream, None)
        stream.close()

    def _serve(self, stream: socket.socket, peer: str) -> None:
        with self._lock:
            self._serving.add(threading.current_thread())
        proved = False
        try:
            stream.settimeout(_HANDSHAKE_TIMEOUT_S)
            control, name = HubControl.accept(stream, self._keys.get, _HANDSHAKE_TIMEOUT_S)
            request = control.receive()
            proved = request is not None
            with self._lock:
                self._strangers.pop(stream, None)
            if request is not None:
                self._serve_rank(control, name, request)
        except (OSError, ControlError) as error:
            if not self._closed:
                tell = logger.warning if proved else self._note
                tell(f"hub: the connection with {peer} has ended: {error}")
        except Exception:
            logger.exception("hub: the connection with %s has ended", peer)
        finally:
            self._forget(stream)
            with self._lock:
                self._serving.discard(threading.current_thread())

    def _note(self, line: str) -> None:
        """A line about a stranger, unless there were many lately."""
        now_s = time.monotonic()
        with self._lock:
            while self._noted_s and self._noted_s[0] < now_s - _NOTES_S:
                self._noted_s.popleft()
            if len(self._noted_s) >= _NOTES_MAX:
                return
            self._noted_s.append(now_s)
        logger.warning(line)

    def _serve_rank(self, control: HubControl, name: str, request: dict[str, Any]) -> None:
        """Serves one rank of a job until it leaves."""
        try:
            job = self._join(name, request, control.uncovered(request["key"]))
        except (DlcpError, *_MALFORMED) as error:
            logger.warning("hub: a rank of job %r is refused: %r", name, error)
            control.send({"refusal": _words_of(error)})
            return
        rank = int(request["rank"])
        orderly = False
        try:
            control.send(
                {
                    "cores": [_plain(core.card) for core in job.cores],
                    "memory_bytes": job.memory_bytes // len(job.cores),
                }
            )
            while not orderly:
                asked = control.receive()
                if asked is None:
                    break
                answer, orderly = self._answer(job, rank, asked)
                control.send(answer)
        finally:
            self._leave(job, rank, orderly=orderly)

    def _answer(self, job: ServedJob, rank: int, asked: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
        """The answer to a request, and whether the rank leaves."""
        try:
            match asked["do"]:
                case "open":
                    job.open(rank, asked)
                case "close":
                    # Apart: the rank does not wait for others that still need what is under way.
                    threading.Thread(
                        target=job.close_group,
                        args=(int(asked["number"]),),
                        name="dlcp-hub-close",
                        daemon=True,
                    ).start()
                case "leave":
                    return {}, True
                case other:
                    raise HubError(f"it does not know the request {other!r}")
        except (DlcpError, *_MALFORMED) as error:
            return {"refusal": _words_of(error)}, False
        return {}, False

    # ---- jobs ----

    def _join(self, name: str, request: Mapping[str, Any], key: bytes) -> ServedJob:
        """The job, of that job key, of a rank that joins; made for its first one.

        Raises HubError, JobError, what Endpoint raises.
        """
        for ending in self._replaced(name, int(request["incarnation"], 16)):
            logger.info("hub: job %r, whose ranks have gone, gives its place to the next of its name", name)
            ending.close()
        with self._lock:
            if request.get("do") != "join" or self._closed:
                raise HubError("it is stopping" if self._closed else "a rank joins before anything else")
            identity = name, int(request["incarnation"], 16)
            job = self._jobs.get(identity)
            if job is None:
                if not self._has_room(name):
                    own = sum(there == name for there, _ in self._jobs)
                    raise HubError(
                        f"it has no memory left: {len(self._jobs)} jobs have {self._job_memory_bytes} of"
                        f" {self._memory_bytes} bytes each, {own} of them named {name!r}, and the first job of each"
                        " name comes before a further one; end earlier starts of this job, or give the hub more (dlcp"
                        " hub --memory-max, --job-memory)"
                    )
                job = ServedJob(
                    name,
                    request,
                    key,
                    self._settings,
                    self._cores,
                    self._job_memory_bytes,
                    self._vml_square_root,
                )
                try:
                    job.check(request, key)
                except BaseException:
                    job.close()
                    raise
                self._jobs[identity] = job
                logger.info("hub: job %r has come, %d here", name, len(self._jobs))
            else:
                job.check(request, key)
            job.ranks.add(int(request["rank"]))
            return job

    def _has_room(self, name: str) -> bool:
        """Whether another job of the name may come. With the lock held."""
        here = {there for there, _ in self._jobs}
        absent = len(self._keys.keys() - here) if name in here else 1
        return (len(self._jobs) + absent + (name in here)) * self._job_memory_bytes <= self._memory_bytes

    def _replaced(self, name: str, incarnation: int) -> list[ServedJob]:
        """Takes out those jobs of the name that are ending, if a new one finds no room beside them."""
        with self._lock:
            if (name, incarnation) in self._jobs or self._has_room(name):
                return []
            ending = [one for one, job in self._jobs.items() if one[0] == name and job.is_ending]
            return [self._jobs.pop(one) for one in ending]

    def _leave(self, job: ServedJob, rank: int, *, orderly: bool) -> None:
        with self._lock:
            job.gone.add(rank)
        if not self._closed:
            job.close_groups_of(rank, orderly=orderly)
        with self._lock:
            job.ranks.discard(rank)
            job.gone.discard(rank)
            if job.ranks:
                return
            known = self._jobs.pop((job.name, job.incarnation), None)
        job.close()
        if known is not None:
            logger.info("hub: job %r has left, %d here", job.name, len(self._jobs))


def _words_of(error: Exception) -> str:
    return str(error) if isinstance(error, DlcpError) else f"it cannot read the request: {error!r}"


def _plain(card: Any) -> dict[str, Any]:
    return {name: getattr(card, name) for name in card.__slots__}
