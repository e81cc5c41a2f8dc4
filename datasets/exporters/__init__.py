"""A history in the forms that other tools read."""

from __future__ import annotations

from routecast.datasets.exporters.selection import select
from routecast.datasets.exporters.trtexec import TrtexecCache, route_expression, trtexec_cache, trtexec_expression

__all__ = ["TrtexecCache", "route_expression", "select", "trtexec_cache", "trtexec_expression"]
