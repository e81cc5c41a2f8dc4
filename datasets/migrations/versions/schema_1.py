"""The tables of routecast 0.1.0."""

import sqlalchemy as sa
from alembic import op

revision = "1"
down_revision = None


def upgrade() -> None:
    """Makes the tables."""
    about = op.create_table(
        "routecast", sa.Column("key", sa.String, primary_key=True), sa.Column("value", sa.String, nullable=False)
    )
    for table, key in (("graphs", "fingerprint"), ("environments", "identity")):
        op.create_table(
            table, sa.Column(key, sa.String, primary_key=True), sa.Column("content", sa.Text, nullable=False)
        )
    op.create_table(
        "measurements",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("identity", sa.String, nullable=False, unique=True),
        sa.Column("fingerprint", sa.String, nullable=False),
        sa.Column("environment", sa.String, nullable=False, index=True),
        sa.Column("run", sa.String, nullable=False, index=True),
        sa.Column("family", sa.String, nullable=False, index=True),
        sa.Column("model", sa.String, nullable=False),
        sa.Column("status", sa.String, nullable=False),
        sa.Column("route", sa.Text, nullable=False),
        sa.Column("created", sa.String, nullable=False),
        sa.Column("ratio", sa.Float),
        sa.Column("content", sa.Text, nullable=False),
        sa.Index("measurements_known", "fingerprint", "environment", "route"),
    )
    op.bulk_insert(about, [{"key": "schema", "value": revision}])
