"""rodi: no async factories and no teardown; its scope is a plain context manager."""

import rodi

from container.services import Checkout, Clock, Orders, Pool, Report, Session, Style

NAME = "rodi"


@rodi.inject()
async def handle(checkout: Checkout) -> Checkout:
    return checkout


async def statements():
    container = rodi.Container()
    container.add_singleton(Pool)
    for service in (Clock, Style, Report):
        container.add_transient(service)
    for service in (Session, Orders, Checkout):
        container.add_scoped(service)
    provider = container.build_provider()
    names = {"provider": provider}
    return {
        "singleton": ("result = provider.get(Pool)", {**names, "Pool": Pool}),
        "transient": ("result = provider.get(Report)", {**names, "Report": Report}),
        "scope": (
            "with provider.create_scope() as scope:\n    result = provider.get(Checkout, scope)",
            {**names, "Checkout": Checkout},
        ),
        "scope entry": ("result = await entry()", {"entry": provider.get_executor(handle)}),
    }


async def boot(graph):
    container = rodi.Container()
    for cls, _ in graph:
        container.add_singleton(cls)
    provider = container.build_provider()
    return [provider.get(cls) for cls, _ in graph]
