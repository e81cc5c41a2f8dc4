"""Alembic's migrations of a history's tables, for SQLite and PostgreSQL.

A new version is a file in ``versions/`` whose ``revision`` is the number after the last one, which it also writes into
the table ``routecast``, where every routecast looks, and which is ``SCHEMA`` in ``tables.py``. A migration repeats
what it needs of the tables: they may look different later.
"""

VERSION_TABLE = "routecast_revision"
"""Where Alembic keeps its version; not its default, which other programs use in a database that they share."""
