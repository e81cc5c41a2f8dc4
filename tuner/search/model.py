"""The strategy that routecast exists for: measure what a cost model expects to gain most."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from routecast.costmodel.base import ModelView
from routecast.datasets.measurement import Measurement
from routecast.datasets.route import Route, RouteSpace
from routecast.tuner.search.acquisition import Attitude, choose_batch
from routecast.tuner.search.base import Strategy
from routecast.tuner.search.pool import Scores, grow_pool, refine
from routecast.tuner.search.screening import SCREENED, crossed, half, screens

# Before the last round a surprise can still be followed up, so the uncertain counts for more.
_EXPLORING = Attitude(std_factor=1.0, failure_power=1.0)
_EXPLOITING = Attitude(std_factor=0.3, failure_power=1.0)
_PARENTS = 8
# Single changes; where a space has more, no tune could try them one by one.
_MANY = 6 * SCREENED
_HANDS = 2


def favourites(space: RouteSpace, view: ModelView, count: int, seed: int = 0) -> list[Route]:
    """The ``count`` routes of a space that a cost model would measure first, were it free to choose."""
    return ModelSearch(space, seed=seed)._guided(view, count)  # guided even by a view that ``ask`` would not trust


class ModelSearch(Strategy):
    """Measures the batch with the greatest expected improvement according to a cost model.

    Where a space has very many knobs and nothing is known yet, the first half of the builds are screens of the most
    promising ones (see ``screening``), and the last round has half of the best route, if that has become long. Each
    other round grows a pool of candidates around the most promising routes, refines it by what was measured, which
    corrects the cost model's view after each round, and chooses a batch by expected improvement, uncertainty and
    diversity (see ``choose_batch``). What differs by no more than noise is decided by what the cost model said before,
    so that a tune made again goes the same way. With no view, or one that warns that it is out of its depth, the
    strategy changes one knob at a time: first on the default route, later also on the best route measured.
    """

    name = "model"

    def __init__(
        self,
        space: RouteSpace,
        *,
        seed: int = 0,
        view: ModelView | None = None,
        pool: int = 2560,
        builds: int | None = None,
        order: ModelView | None = None,
        candidates: Iterable[Route] | None = None,
    ) -> None:
        """Takes what predicts, and how far to look.

        Args:
            space: the routes to choose from.
            seed: of everything random.
            view: the cost model's view of the model being tuned.
            pool: how many candidates to score per round.
            builds: how many routes will be asked for in all; the last of them are chosen without extra
                exploration.
            order: what sorts single changes when ``view`` is out of its depth; ``view`` itself when None.
            candidates: the only routes that may be asked; they are then the pool.
        """
        super().__init__(space, seed=seed, candidates=candidates)
        self._trusted = view is not None and not view.warnings
        self._first = view if self._trusted else order or view
        self._view = self._first
        self._pool = pool
        self._builds = builds
        self._asked = 0
        self._hands: list[Route] = []

    def ask(self, count: int) -> list[Route]:
        """See ``Strategy.ask``."""
        if not self._asked:
            self._hands = self._deal()
        routes = super().ask(count)
        self._asked += len(routes)
        return routes

    def _propose(self, count: int) -> Iterator[Route]:
        if self._trusted and self._view is not None:
            yield from self._screens(self._view)
            if self.best is not None and len(self.best.route) > SCREENED and count > 1 and self._is_last(count):
                yield half(self.space, self._view, self.best.route)
            yield from self._guided(self._view, count)
        else:
            yield from self._scan()
        yield from self._random(count)

    def _learn(self, measurements: Sequence[Measurement]) -> None:
        del measurements
        if self._first is not None:
            self._view = self._first.adapt(list(self._told.values()))

    def _deal(self) -> list[Route]:
        """Screens, if nothing is known yet and there is much to find."""
        if not self._trusted or self._view is None or self._told or self.candidates is not None:
            return []
        return screens(self.space, self._view, _HANDS) if len(self.space.single_changes()) > _MANY else []

    def _screens(self, view: ModelView) -> Iterator[Route]:
        """The screens, and those that worked on the other precision too, with half of the builds at most."""
        failed = {route for route, item in self._told.items() if not item.ok}
        again = [crossed(self.space, view, hand) for hand in self._hands if hand not in failed]
        yield from [*self._hands, *again][: None if self._builds is None else self._builds // 2]

    def _is_last(self, count: int) -> bool:
        return self._builds is not None and self._asked + count >= self._builds

    def _guided(self, view: ModelView, count: int) -> list[Route]:
        done = sorted((item for item in self._told.values() if item.ok), key=lambda item: item.log_ratio)
        leading = {item.route for item in done[:_PARENTS] if item.log_ratio < 0}
        parents = [route for route in self._told if route in leading]
        first = view if self._first is None else self._first
        growing, choosing = self.rng.spawn(2)
        if self.candidates is None:
            grown = grow_pool(self.space, first, growing, self._pool, parents)
            candidates = refine(self.space, view, grown.routes, parents).without(self._seen)
        else:
            candidates = Scores.of(view, [route for route in self.candidates if self._is_new(route)])
        return choose_batch(
            candidates,
            count,
            self._best_log_ratio,
            Scores.of(first, self.space.single_changes()),
            choosing,
            prior=Scores.of(first, candidates.routes).log_ratio,
            attitude=_EXPLOITING if self._is_last(count) else _EXPLORING,
        )

    def _scan(self) -> Iterator[Route]:
        """Single changes of the best route measured and of the default route, the most promising first."""
        routes = self.space.single_changes()
        if self.best is not None and self._best_log_ratio < 0:
            routes += self.space.single_changes(self.best.route)
        routes = [route for route in dict.fromkeys(routes) if not route.is_default]
        if self._view is None:
            yield from routes
        else:
            yield from Scores.of(self._view, routes).leading(len(routes))

    @property
    def _best_log_ratio(self) -> float:
        """Of the best route known, which is the default route until another beats it."""
        return min(0.0, self.best.log_ratio) if self.best is not None else 0.0
