"""A digest of the route in the index, rows that the database lets nobody change, and limits to their size."""

import hashlib

import sqlalchemy as sa
from alembic import op

revision = "2"
down_revision = "1"

CONTENT_BYTES = {"graphs": 64 << 20, "environments": 64 << 10, "measurements": 8 << 20}
KEY_BYTES = {"graphs": {"fingerprint": 128}, "environments": {"identity": 128}}
COLUMN_BYTES = {
    "identity": 128, "fingerprint": 128, "environment": 128, "run": 128, "status": 32, "created": 64,
    "family": 256, "model": 1024, "route": 64 << 10, "route_digest": 32,
}  # fmt: skip
LIMITS = {table: {"content": content, **KEY_BYTES.get(table, COLUMN_BYTES)} for table, content in CONTENT_BYTES.items()}


def upgrade() -> None:
    """Changes the tables of schema 1."""
    server = op.get_bind().dialect.name == "postgresql"
    # The default lets a process of routecast 0.1.0, that has the file open now, go on storing.
    op.add_column("measurements", sa.Column("route_digest", sa.String(32), nullable=False, server_default=""))
    (_digest_on_server if server else _digest_in_file)()
    op.drop_index("measurements_known", "measurements")
    op.create_index("measurements_known", "measurements", ["fingerprint", "environment", "route_digest"])
    (_protect_on_server if server else _protect_in_file)()
    op.execute(sa.text("UPDATE routecast SET value = :value WHERE key = 'schema'").bindparams(value=revision))


def _digest_on_server() -> None:
    op.execute("UPDATE measurements SET route_digest = left(encode(sha256(convert_to(route, 'UTF8')), 'hex'), 32)")


def _digest_in_file() -> None:
    connection = op.get_bind().connection.driver_connection
    assert connection is not None
    connection.create_function("digest_of", 1, lambda route: hashlib.sha256(route.encode()).hexdigest()[:32])
    op.execute("UPDATE measurements SET route_digest = digest_of(route)")


def _protect_on_server() -> None:
    op.execute(
        "CREATE FUNCTION routecast_refuse() RETURNS trigger LANGUAGE plpgsql AS $$"
        " BEGIN RAISE EXCEPTION '% are never changed, only added', TG_TABLE_NAME; END $$"
    )
    for table, limits in LIMITS.items():
        op.execute(
            f"CREATE TRIGGER {table}_only_grow BEFORE UPDATE OR DELETE OR TRUNCATE ON {table}"
            " FOR EACH STATEMENT EXECUTE FUNCTION routecast_refuse()"
        )
        sizes = " AND ".join(f"octet_length({name}) <= {most}" for name, most in limits.items())
        op.create_check_constraint(f"{table}_sizes", table, sizes)


def _protect_in_file() -> None:
    """With triggers: SQLite adds a constraint only by writing the table anew, and rows that are there must stay."""
    for table, limits in LIMITS.items():
        for act in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER {table}_no_{act.lower()} BEFORE {act} ON {table}"
                f" BEGIN SELECT RAISE(ABORT, '{table} are never changed, only added'); END"
            )
        sizes = " OR ".join(f"length(CAST(NEW.{name} AS BLOB)) > {most}" for name, most in limits.items())
        op.execute(
            f"CREATE TRIGGER {table}_sizes BEFORE INSERT ON {table} WHEN {sizes}"
            f" BEGIN SELECT RAISE(ABORT, 'a row of {table} is over its size limits'); END"
        )
