"""``routecast collect``: measure many routes of many networks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from routecast.tuner.cli import options
from routecast.tuner.cli.errors import say_if_interrupted

if TYPE_CHECKING:
    from routecast.datasets.zoo import Network


def collect(
    context: typer.Context,
    network: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A network of the zoo; may be repeated.", show_default="all not held out"),
    ] = None,
    *,
    family: Annotated[list[str] | None, typer.Option(help="Networks of this family; may be repeated.")] = None,
    backend: options.BackendOption = "onnxruntime",
    per_network: Annotated[int, typer.Option(min=1, help="Routes per network.")] = 42,
    favourites: Annotated[
        int, typer.Option(min=0, help="Further routes per network: those that the cost model thinks best.")
    ] = 0,
    screens: Annotated[
        int, typer.Option(min=0, help="Further routes per network: many knobs at once, to find those that matter.")
    ] = 0,
    cost_model: options.CostModelOption = None,
    seed: options.SeedOption = 0,
    timeout: Annotated[float, typer.Option(help="Seconds for one route.")] = 60.0,
    minutes: Annotated[float | None, typer.Option(help="Begin no new route after this time.")] = None,
    ray: options.RayOption = None,
    history: options.HistoryOption = None,
    journal: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Store in a .jsonl journal instead of the history.")
    ] = None,
    json: options.JsonOption = False,
) -> None:
    """Measure routes of the zoo's networks into a history. Goes on where an earlier collection stopped."""
    from routecast.datasets.history import History
    from routecast.datasets.journal import Journal
    from routecast.tuner.cli.output import console, print_json
    from routecast.tuner.collection import CollectConfig
    from routecast.tuner.collection import collect as run
    from routecast.tuner.progress import TerminalProgress

    say_if_interrupted(context, "every measurement made so far is kept; the same command goes on from there")
    chosen = _chosen(network or [], family or [])
    config = CollectConfig(
        backend,
        per_network=per_network,
        favourites=favourites,
        screens=screens,
        cost_model=cost_model,
        seed=seed,
        timeout_s=timeout,
        minutes=minutes,
    )
    with Journal(journal) if journal else History(history) as store:
        progress = TerminalProgress(console(err=True), several_models=True)
        summary = run(chosen, store, config, progress, ray=ray)
        place = store.place
    if json:
        print_json({**vars(summary), "store": place})
        return
    typer.echo(f"{summary.measured} measurements, {summary.ok} ok, in {summary.seconds / 60:.1f} minutes, in {place}")
    for name, reason in summary.skipped.items():
        typer.echo(f"skipped {name}: {reason}")


def _chosen(names: list[str], families: list[str]) -> list[Network]:
    from routecast.datasets.errors import UsageError
    from routecast.datasets.zoo import network, networks

    if names:
        return [network(name) for name in names]
    every = networks()
    known = {item.family for item in every}
    if unknown := sorted(set(families) - known):
        raise UsageError(f"the zoo has no family {', '.join(unknown)}; it has {', '.join(sorted(known))}")
    # A family that is asked for by name is wanted even if benchmarks hold it out.
    return [item for item in every if (item.family in families if families else not item.held_out)]
