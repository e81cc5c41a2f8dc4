"""What Alembic runs: the migrations, on the connection and in the transaction that ``schema.py`` opened."""

from alembic import context

from routecast.datasets.migrations import VERSION_TABLE
from routecast.datasets.tables import metadata

context.configure(
    connection=context.config.attributes["connection"], target_metadata=metadata, version_table=VERSION_TABLE
)
context.run_migrations()
