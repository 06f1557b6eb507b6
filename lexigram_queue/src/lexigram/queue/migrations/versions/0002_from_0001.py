"""Bridge of the bus: a database of the main branch before the first release. Goes in 1.1.

Adds how often the handler of a delivery was begun.
"""

import sqlalchemy as sa
from alembic import op


def upgrade() -> None:
    """Add a column with a default: waiting deliveries have not been begun."""
    begun = sa.Column("begun", sa.Integer, nullable=False, server_default=sa.text("0"))
    op.add_column("lexigram_bus_deliveries", begun)
