# pyright: strict
"""What the type checkers say of a list of modules; read by them, never run."""

from typing import assert_type

from lexigram.app import Application
from lexigram.di import DynamicModule, Module, ModuleLike, module


@module
class Shop(Module): ...


modules: list[ModuleLike] = [Shop, DynamicModule(module=Shop)]
modules.append(Shop)
assert_type(Application("shop", modules=modules), Application)


def installed() -> list[ModuleLike]:
    return [Shop]


Application("shop", modules=[*modules, *installed()])
