"""The provider of the database."""

from lexigram.sql.di.provider import SqlProvider

__all__ = ["SqlProvider"]
