"""Who measures what, when: hands routes to idle workers, and yields what comes back as it comes."""

from __future__ import annotations

import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

from routecast.datasets.errors import RoutecastError, UsageError
from routecast.datasets.measurement import Measurement, Status
from routecast.datasets.route import RouteSpace
from routecast.tuner.fleet.builds import Builds
from routecast.tuner.fleet.bundle import pack
from routecast.tuner.fleet.crew import Crew, Kind, Worker, explain
from routecast.tuner.fleet.replies import BadReply, decode, read_measurement, read_space
from routecast.tuner.measure.subjects import Measured, Outcome, Plan, Subject, Task, Unmeasured

ATTEMPTS = 3
"""A route on which so many workers died is not given to another one."""
POLL_SECONDS = 1.0
MAKING_SECONDS = 0.05
"""How long a worker waits for the next subject before the others are looked after."""


@dataclass(eq=False)
class Sent:
    """A subject in the cluster's object store.

    Attributes:
        subject: what to measure.
        key: names it on the workers.
        bundle: Ray's reference to its bytes, which go to each node once.
    """

    subject: Subject
    key: str
    bundle: Any

    @classmethod
    def send(cls, subject: Subject) -> Sent:
        """Puts a subject into the object store.

        Raises:
            UsageError: it is too large.
        """
        import ray

        return cls(subject, uuid.uuid4().hex[:16], ray.put(pack(subject)))


@dataclass(eq=False)
class Book:
    """What is left to do of one subject on one kind of workers.

    Attributes:
        sent: the subject.
        tasks: what no worker has begun, in order; None until the first worker has told the route space.
        opening: whether a worker is about to tell it.
        attempts: workers that died, by task; None stands for opening the model.
        given_up: whether the subject cannot be measured.
    """

    sent: Sent
    tasks: deque[Task] | None = None
    opening: bool = False
    attempts: dict[Task | None, int] = field(default_factory=dict)
    given_up: bool = False

    @property
    def left(self) -> int:
        """Number of tasks that no worker has begun."""
        return len(self.tasks or ())


@dataclass(frozen=True)
class Call:
    """Something that a worker was asked: to open a book's model, or to do one of its tasks."""

    worker: Worker
    book: Book
    task: Task | None


class Round:
    """Measures subjects on the workers of a crew.

    A worker stays with a subject as long as there are routes left, since opening one costs seconds. A worker
    without work helps where most is left. Workers of different kinds do not share: each kind measures every subject.
    """

    def __init__(
        self,
        crew: Crew,
        subjects: Iterable[Sent],
        plan: Plan,
        late: Callable[[], bool],
        *,
        builds: Builds,
        stage: Callable[[str], None],
        suitable: Callable[[Worker], bool] = lambda _: True,
        patience: float,
    ) -> None:
        """Takes the crew and what to do.

        Args:
            crew: the workers.
            subjects: what to measure; the next one is asked for, in a thread, when a worker wants it.
            plan: chooses the routes of a subject for one kind of workers.
            late: says when it is time to stop; what is being measured is then ended, and not recorded.
            builds: builds that other hosts make.
            stage: is told what is going on.
            suitable: which workers may be used.
            patience: seconds to wait for a worker while there is none.
        """
        self._crew = crew
        self._subjects = iter(subjects)
        self._plan = plan
        self._late = late
        self._builds = builds
        self._stage = stage
        self._suitable = suitable
        self._patience = patience
        self._books: list[dict[Kind, Book]] = []
        self._exhausted = False
        self._maker = ThreadPoolExecutor(1)
        self._upcoming: Future[Sent | None] | None = None
        self._calls: dict[Any, Call] = {}
        self._idle_since: float | None = None

    def outcomes(self) -> Iterator[Outcome]:
        """Does the work.

        Raises:
            RoutecastError: there is no worker, or none is left, though there is work.
        """
        try:
            while not self._late():
                self._crew.refresh()
                for worker in self._idle():
                    self._occupy(worker)
                if self._calls:
                    self._idle_since = None
                elif self._done():
                    return
                elif self._waited_enough():
                    yield from self._abandon()
                    return
                yield from self._answers()
        finally:
            for call in self._calls.values():
                self._crew.stop(call.worker)
            self._calls.clear()
            self._builds.cancel()
            self._maker.shutdown(cancel_futures=True)

    def _idle(self) -> list[Worker]:
        """Idle workers, those with a model open first: what is measured one by one stays on one worker."""
        idle = [worker for worker in self._crew.live if not worker.busy and self._suitable(worker)]
        return sorted(idle, key=lambda worker: not worker.opened)

    def _occupy(self, worker: Worker) -> None:
        book = self._book_for(worker)
        if book is None:
            return
        if worker.opened != book.sent.key:
            book.opening = True
            worker.opened, worker.space = "", None  # opening one model closes the one before
            self._ask(worker, book, None, worker.actor.open.remote(book.sent.key, book.sent.bundle))
        elif book.tasks is None:
            assert worker.space is not None
            self._open(book, worker, worker.space)
            self._occupy(worker)
        elif (task := self._builds.choose(book.sent.key, book.tasks)) is not None:
            book.tasks.remove(task)
            built = self._builds.take(book.sent.key, task.route)
            self._ask(worker, book, task, worker.actor.measure.remote(str(task.route), task.purpose.value, built))

    def _ask(self, worker: Worker, book: Book, task: Task | None, reference: Any) -> None:
        worker.busy = True
        self._calls[reference] = Call(worker, book, task)
        names = dict.fromkeys(call.book.sent.subject.model.name for call in self._calls.values())
        count = len(self._crew.live)
        self._stage(f"{count} worker{'s' if count > 1 else ''}: {', '.join(names)}")

    def _book_for(self, worker: Worker) -> Book | None:
        """The book that a worker goes on with, begins, or helps with."""
        mine = [book for book in self._of_kind(worker.kind) if book.sent.key == worker.opened]
        if any(book.left or (book.tasks is None and not book.opening) for book in mine):
            return mine[0]
        return self._next(worker.kind) or self._helped(worker)

    def _of_kind(self, kind: Kind) -> list[Book]:
        return [book for books in self._books for known, book in books.items() if known == kind and not book.given_up]

    def _next(self, kind: Kind) -> Book | None:
        """A book of this kind that nobody has begun."""
        for book in self._of_kind(kind):
            if book.tasks is None and not book.opening:
                return book
        for books in self._books:
            if books and kind not in books:
                return books.setdefault(kind, Book(next(iter(books.values())).sent))
        self._release()
        sent = self._made()
        if sent is None:
            return None
        self._books.append({kind: Book(sent)})
        return self._books[-1][kind]

    def _made(self) -> Sent | None:
        """The next subject, if it is ready: a thread makes it, while results and the time are watched."""
        if self._exhausted:
            return None
        if self._upcoming is None:
            self._upcoming = self._maker.submit(next, self._subjects, None)
        if not wait([self._upcoming], MAKING_SECONDS).done:
            return None
        sent, self._upcoming = self._upcoming.result(), None
        self._exhausted = sent is None
        return sent

    def _helped(self, worker: Worker) -> Book | None:
        """The book with most left, unless its last task is about to be taken by whoever has it open."""
        open_on = {other.opened for other in self._crew.live if other is not worker}
        books = [book for book in self._of_kind(worker.kind) if book.left > (book.sent.key in open_on)]
        return max(books, key=lambda book: book.left, default=None)

    def _open(self, book: Book, worker: Worker, space: RouteSpace) -> None:
        assert worker.environment is not None
        book.tasks = deque(self._plan(book.sent.subject.model, space, worker.environment))
        self._builds.begin(book.sent.key, book.sent.bundle, book.tasks, space, worker.environment)

    def _answers(self) -> Iterator[Outcome]:
        import ray

        if not self._calls:
            time.sleep(POLL_SECONDS / 5)
            return
        ready, _ = ray.wait(list(self._calls), num_returns=1, timeout=POLL_SECONDS)
        for reference in ready:
            call = self._calls.pop(reference)
            call.worker.busy = False
            try:
                data = decode(ray.get(reference))
                yield from self._opened(call, data) if call.task is None else self._measured(call, call.task, data)
            except BadReply as error:
                self._crew.refuse(call.worker, str(error))
                yield from self._again(call, str(error))
            except ray.exceptions.RayTaskError as error:
                if not isinstance(error.cause, ray.exceptions.RayError):  # else its build was lost with another node
                    self._crew.refuse(call.worker, explain(error))
                yield from self._again(call, explain(error))
            except ray.exceptions.RayError as error:
                self._crew.lose(call.worker, explain(error))
                yield from self._again(call, explain(error))

    def _opened(self, call: Call, data: dict[str, Any]) -> Iterator[Outcome]:
        if "unusable" in data:
            yield from self._give_up(call, data)
            return
        worker, book = call.worker, call.book
        worker.space = read_space(data)
        worker.opened, worker.made = book.sent.key, set()
        book.opening = False
        if book.tasks is None:
            self._open(book, worker, worker.space)

    def _measured(self, call: Call, task: Task, data: dict[str, Any]) -> Iterator[Outcome]:
        worker, book = call.worker, call.book
        if "unusable" in data:
            yield from self._give_up(call, data)
        elif "broken" in data:  # the host's fault, not the route's
            self._crew.refuse(worker, str(data["broken"]))
            book.tasks = deque([task, *(book.tasks or ())])
        else:
            assert worker.environment is not None
            found = read_measurement(data, book.sent.subject, task, worker.environment, self._crew.seen)
            self._crew.seen.add(found.identity)
            worker.made.add(found.identity)
            worker.place.deaths = 0
            yield Measured(found, worker.environment)

    def _give_up(self, call: Call, data: dict[str, Any]) -> Iterator[Outcome]:
        if not call.book.given_up:
            call.book.given_up = True
            why = data["unusable"]
            kind = UsageError if why["exit_status"] == UsageError.exit_status else RoutecastError
            yield Unmeasured(call.book.sent.subject.model.name, kind(str(why["message"])))

    def _again(self, call: Call, reason: str) -> Iterator[Outcome]:
        """What was asked of a worker that is no more is asked of another one, a few times."""
        book, task = call.book, call.task
        book.opening = False
        attempts = book.attempts[task] = book.attempts.get(task, 0) + 1
        if attempts < ATTEMPTS:
            if task is not None:
                book.tasks = deque([task, *(book.tasks or ())])
        elif task is None:
            book.given_up = True
            error = RoutecastError(f"{attempts} workers died while opening it, the last: {reason}")
            yield Unmeasured(book.sent.subject.model.name, error)
        else:
            yield self._crashed(call, task, f"{attempts} workers died while measuring it: {reason}")

    def _crashed(self, call: Call, task: Task, message: str) -> Measured:
        subject, environment = call.book.sent.subject, call.worker.environment
        assert environment is not None
        measurement = Measurement(
            fingerprint=subject.model.graph.fingerprint,
            route=task.route,
            environment=environment.identity,
            status=Status.CRASHED,
            model=subject.model.name,
            family=subject.model.family,
            purpose=task.purpose,
            run=subject.run,
            message=message,
        )
        return Measured(measurement, environment)

    def _done(self) -> bool:
        """Whether nothing is left, now that nothing is under way."""
        return self._exhausted and not self._unfinished()

    def _unfinished(self) -> list[Book]:
        books = [book for of_kind in self._books for book in of_kind.values()]
        return [book for book in books if not book.given_up and (book.tasks is None or book.left)]

    def _release(self) -> None:
        """Forgets subjects that every kind of workers is through with, and so their bytes in the object store."""
        kinds = {worker.kind for worker in self._crew.live}
        under_way = {call.book for call in self._calls.values()} | set(self._unfinished())
        for books in self._books:
            if kinds <= books.keys() and not under_way.intersection(books.values()):
                books.clear()

    def _waited_enough(self) -> bool:
        """Whether there has been nobody for the work for too long."""
        if self._builds.busy or self._upcoming is not None:
            self._idle_since = None
            return False
        self._idle_since = self._idle_since or time.monotonic()
        return self._crew.hopeless or time.monotonic() - self._idle_since > self._patience

    def _abandon(self) -> Iterator[Outcome]:
        """Says of what is left that nobody is left for it."""
        if not any(map(self._suitable, self._crew.live)):
            raise RoutecastError(
                f"no worker can measure: {self._crew.why_nobody()}. What was measured is kept, and the same command "
                "goes on from there"
            )
        for book in self._unfinished():
            why = RoutecastError(f"{book.left or 'its'} routes are left and no worker with its kind of device is")
            yield Unmeasured(book.sent.subject.model.name, why)
