"""Jobs in memory, SQLite and PostgreSQL beside procrastinate, pgqueuer, taskiq and arq."""
