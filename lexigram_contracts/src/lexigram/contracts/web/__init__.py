"""Contracts of the web host."""

from lexigram.contracts.web.protocols import RouteContributorProtocol

__all__ = ["RouteContributorProtocol"]
