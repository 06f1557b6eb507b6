"""Lexigram AI workers: their module and their configuration."""

from lexigram.ai.workers.config import WorkersConfig
from lexigram.ai.workers.di.provider import WorkersProvider
from lexigram.ai.workers.module import WorkersModule

__all__ = ["WorkersConfig", "WorkersModule", "WorkersProvider"]
