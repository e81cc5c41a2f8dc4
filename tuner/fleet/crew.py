"""The workers of a fleet: connecting to a cluster, one measuring actor per GPU or per machine, what dies and joins."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from routecast.datasets.environment import Environment
from routecast.datasets.errors import MissingPackage, UsageError
from routecast.datasets.route import RouteSpace
from routecast.tuner.backends.base import Backend, one_line
from routecast.tuner.fleet.remote import RemoteWorker, versions
from routecast.tuner.fleet.replies import BadReply, read_hello, refusal

ANSWER_SECONDS = 5.0
REFRESH_SECONDS = 2.0
DEATHS = 6
"""A place gets no further worker after so many deaths in a row, without a measurement in between: two routes' worth."""


@dataclass
class Place:
    """Where one worker may be: a GPU, or all cores of a node.

    Attributes:
        node: Ray's identity of the node.
        address: of the node, for people.
        cores: number of cores that Ray counts there.
        deaths: workers that died here in a row.
        refused: why nothing is placed here, empty while something may be.
    """

    node: str
    address: str
    cores: float
    deaths: int = 0
    refused: str = ""


@dataclass(eq=False)
class Worker:
    """One measuring actor, as the driver sees it.

    Attributes:
        place: where it is.
        actor: Ray's handle.
        hello: Ray's reference to what it says of itself, None once it has said so.
        environment: where it measures.
        opened: key of the model that is open on it, empty when none is.
        space: that model's route space there.
        busy: whether it was asked something and has not answered.
        made: identities of its measurements of the open model.
    """

    place: Place
    actor: Any
    hello: Any
    environment: Environment | None = None
    opened: str = ""
    space: RouteSpace | None = None
    busy: bool = False
    made: set[str] = field(default_factory=set)

    @property
    def kind(self) -> Kind:
        """What workers must share for their measurements to stand for each other."""
        assert self.environment is not None
        return kind_of(self.environment)

    def __str__(self) -> str:
        device = self.environment.device if self.environment else "not started"
        return f"the worker on {self.place.address} ({device})"


Kind = tuple[object, ...]


def kind_of(environment: Environment) -> Kind:
    """Backend, its versions, device and numbers of cores and threads: what routes and latencies depend on most."""
    numbers = (environment.numbers.get(name) for name in ("cores", "threads"))
    versions = environment.backend_version, environment.tuner_version
    return environment.backend, *versions, environment.device, *numbers


def connect(address: str) -> bool:
    """Connects this process to a cluster.

    Returns:
        Whether it was not connected before, so that disconnecting is up to the caller.

    Raises:
        MissingPackage: Ray is not installed.
        UsageError: nobody answers at the address, or driver and cluster have different versions.
    """
    try:
        import ray
    except ImportError as error:
        raise MissingPackage("ray", "measuring on a fleet (--ray)", "ray") from error
    if ray.is_initialized():
        return False
    _check_answers(address)
    try:
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # Ray raises half a dozen kinds
        hint = "run this on a machine of the cluster, with the cluster's versions of Python and Ray; see `ray status`"
        raise UsageError(f"cannot join the Ray cluster at {address}: {one_line(error)}; {hint}") from error
    return True


def disconnect() -> None:
    """Leaves the cluster."""
    import ray

    ray.shutdown()


def _check_answers(address: str) -> None:
    """Looks who is there before Ray does, which waits for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if address in ("auto", "local"):
        return
    if not (colon and host and port.isdigit()):
        raise UsageError(f"--ray takes HOST:PORT, ray://HOST:PORT or auto, got {address!r}")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), ANSWER_SECONDS) as connection:
            if not os.environ.get("RAY_USE_TLS"):
                _greet_grpc(connection)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"no Ray cluster answers at {address} ({reason}): start one with `ray start --head`, or correct --ray"
        ) from error


def _greet_grpc(connection: socket.socket) -> None:
    """Starts HTTP/2 (RFC 9113, 3.4), as gRPC does: a server answers with its settings at once.

    Raises:
        OSError: what listens is no gRPC server.
    """
    connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
    connection.settimeout(ANSWER_SECONDS)
    if connection.recv(4)[3:4] != b"\4":
        raise OSError("what listens there is not Ray")


class Crew:
    """The workers at hand, kept in step with the nodes that are alive.

    Attributes:
        workers: all of them, those that are starting too.
        places: where workers are or may be, by node and number there.
        seen: identities of all measurements that came from workers.
    """

    def __init__(self, backend: Backend, note: Callable[[str], None]) -> None:
        """Takes what the workers measure with and who is told of what happens to them."""
        self.workers: list[Worker] = []
        self.places: dict[tuple[str, int], Place] = {}
        self.seen: set[str] = set()
        self._backend = backend
        self._note = note
        self._refreshed = -REFRESH_SECONDS
        self._counted: Counter[str] = Counter()

    @property
    def live(self) -> list[Worker]:
        """The workers that are ready."""
        return [worker for worker in self.workers if worker.environment is not None]

    def refresh(self) -> None:
        """Places workers where there is none, and takes in those that have started."""
        if time.monotonic() - self._refreshed >= REFRESH_SECONDS:
            self._refreshed = time.monotonic()
            self._place()
        for worker in [worker for worker in self.workers if worker.hello is not None]:
            self._greet(worker)
        counted = Counter(worker.environment.device for worker in self.workers if worker.environment)
        if counted != self._counted and not any(worker.hello for worker in self.workers):
            self._counted = counted
            devices = ", ".join(f"{count} x {device}" for device, count in counted.items())
            self._note(f"workers: {devices or 'none'}")

    def lose(self, worker: Worker, reason: str) -> None:
        """A worker died, or must: another one may take its place."""
        worker.place.deaths += 1
        if worker.place.deaths >= DEATHS:
            worker.place.refused = f"{DEATHS} workers died there in a row, the last: {reason}"
        self._remove(worker)
        self._note(f"{worker} is lost: {reason}")

    def refuse(self, worker: Worker, reason: str) -> None:
        """A worker is of no use, nor would another one in its place be."""
        worker.place.refused = reason
        self._remove(worker)
        self._note(f"{worker} takes no part: {reason}")

    def stop(self, worker: Worker) -> None:
        """Ends a worker that is busy with what nobody wants any more; another one may take its place."""
        if worker in self.workers:
            self._remove(worker)

    @property
    def hopeless(self) -> bool:
        """Whether every place that there is was refused."""
        return bool(self.places) and all(place.refused for place in self.places.values())

    def why_nobody(self) -> str:
        """Why there is no worker, in one line."""
        reasons = sorted({place.refused for place in self.places.values() if place.refused})
        if reasons:
            return "; ".join(reasons)
        what = "a GPU" if self._backend.uses_gpu else "a CPU"
        if not self.places:
            return f"no node of the cluster has {what}; see `ray status`"
        return f"every node that has {what} is gone or in use by others; see `ray status`"

    @property
    def cores(self) -> int:
        """Number of cores of the whole cluster, as Ray counts them."""
        return int(sum(node["Resources"].get("CPU", 0) for node in _nodes() if node["Alive"]))

    def close(self) -> None:
        """Ends all workers; those that are idle tidy up first."""
        import ray

        ending = [worker.actor.close.remote() for worker in self.live if not worker.busy]
        if ending:
            ray.wait(ending, num_returns=len(ending), timeout=ANSWER_SECONDS)
        for worker in list(self.workers):
            self._remove(worker)

    def _remove(self, worker: Worker) -> None:
        import ray

        self.workers.remove(worker)
        ray.kill(worker.actor)

    def _place(self) -> None:
        alive = {node["NodeID"]: node for node in _nodes() if node["Alive"]}
        taken = {id(worker.place) for worker in self.workers}
        for key in _keys(alive, self._backend.uses_gpu):
            node = alive[key[0]]
            place = self.places.setdefault(
                key, Place(key[0], node["NodeManagerAddress"], node["Resources"].get("CPU", 0))
            )
            if id(place) not in taken and not place.refused:
                self._start(place)

    def _start(self, place: Place) -> None:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        # All of a node's cores, or one GPU: nobody else's work, nor a second worker, is then placed beside a timing.
        share = {"num_gpus": 1, "num_cpus": 0} if self._backend.uses_gpu else {"num_cpus": place.cores}
        here = NodeAffinitySchedulingStrategy(place.node, soft=False)
        actor: Any = ray.remote(RemoteWorker)
        handle = actor.options(**share, max_restarts=0, scheduling_strategy=here).remote(self._backend.name)
        self.workers.append(Worker(place, handle, handle.hello.remote()))

    def _greet(self, worker: Worker) -> None:
        import ray

        if not ray.wait([worker.hello], timeout=0)[0]:
            return
        try:
            hello = read_hello(ray.get(worker.hello))
        except BadReply as error:
            self.refuse(worker, str(error))
        except ray.exceptions.RayError as error:
            if "No module named 'routecast" in str(error):
                self.refuse(worker, "routecast is not installed there, or is another version: install the same one")
            elif "creation task" in str(error):  # it cannot even be made; Ray's text ends with the reason
                self.refuse(worker, str(error).strip().splitlines()[-1])
            else:
                self.lose(worker, explain(error))
        else:
            worker.hello = None
            reason = refusal(hello, self._backend.name, versions())
            worker.environment = hello.environment
            if reason:
                self.refuse(worker, reason)


def explain(error: Exception) -> str:
    """One line about an error that Ray raised: the original one's where a worker raised it."""
    cause = getattr(error, "cause", None)
    return one_line(cause if isinstance(cause, Exception) else error)


def _nodes() -> list[dict[str, Any]]:
    import ray

    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return nodes


def _keys(nodes: dict[str, Any], gpu: bool) -> Iterator[tuple[str, int]]:
    for identity, node in nodes.items():
        count = int(node["Resources"].get("GPU", 0)) if gpu else int(node["Resources"].get("CPU", 0) >= 1)
        yield from ((identity, index) for index in range(count))
