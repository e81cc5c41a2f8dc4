"""The tables of a history. ``migrations/`` makes them; a test sees that both agree."""

from __future__ import annotations

import hashlib

from sqlalchemy import BigInteger, Column, Float, Index, Integer, MetaData, String, Table, Text

from routecast.datasets.route import Route

SCHEMA = 2
"""Version of the tables; raised with every change that an older routecast would misread."""

metadata = MetaData()

about = Table("routecast", metadata, Column("key", String, primary_key=True), Column("value", String, nullable=False))
graphs = Table(
    "graphs",
    metadata,
    Column("fingerprint", String, primary_key=True),
    Column("content", Text, nullable=False),
)
environments = Table(
    "environments",
    metadata,
    Column("identity", String, primary_key=True),
    Column("content", Text, nullable=False),
)
measurements = Table(
    "measurements",
    metadata,
    # PostgreSQL draws a number for a row that it then finds stored already: 32 bits would run out.
    Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("identity", String, nullable=False, unique=True),
    Column("fingerprint", String, nullable=False),
    Column("environment", String, nullable=False, index=True),
    Column("run", String, nullable=False, index=True),
    Column("family", String, nullable=False, index=True),
    Column("model", String, nullable=False),
    Column("status", String, nullable=False),
    Column("route", Text, nullable=False),
    # A row of an index holds at most 2,700 bytes in PostgreSQL, which a route may exceed.
    Column("route_digest", String(32), nullable=False, server_default=""),
    Column("created", String, nullable=False),
    Column("ratio", Float),
    Column("content", Text, nullable=False),
    Index("measurements_known", "fingerprint", "environment", "route_digest"),
)
STORED = (graphs, environments, measurements)
"""The tables that only ever grow."""


def route_digest(route: Route | str) -> str:
    """32 hexadecimal digits that stand for a route, or for its text, in an index."""
    return hashlib.sha256(str(route).encode()).hexdigest()[:32]
