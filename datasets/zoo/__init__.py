"""The zoo: many different ONNX networks, made on the spot, to measure build routes on.

Importing this package loads neither torch nor onnx; a network's ``make`` loads what it needs.
"""

from __future__ import annotations

import difflib

from routecast.datasets.errors import UsageError
from routecast.datasets.zoo import onnx_package, torch_modules, wheels
from routecast.datasets.zoo.entry import Network

__all__ = ["Network", "network", "networks"]


def networks() -> tuple[Network, ...]:
    """Returns every network that can be made here; sources whose package is absent are left out."""
    return onnx_package.networks() + wheels.networks() + torch_modules.networks()


def network(name: str) -> Network:
    """Returns the network called ``name``.

    Raises:
        UsageError: when there is none; the message offers near names.
    """
    by_name = {each.name: each for each in networks()}
    if name in by_name:
        return by_name[name]
    near = difflib.get_close_matches(name, by_name)
    if near:
        hint = f"did you mean {' or '.join(near)}?"
    else:
        hint = f"choose one of the {len(by_name)} that routecast.datasets.zoo.networks() lists"
    raise UsageError(f"the zoo has no network {name!r} that can be made here: {hint}")
