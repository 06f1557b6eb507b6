"""What can go wrong with an application as a whole."""

from __future__ import annotations

from lexigram.contracts.core.errors import LexigramError


class ApplicationError(LexigramError, RuntimeError):
    """The application was asked for something its state does not allow."""

    code = "LEX_ERR_APP_001"


class AppStartupError(ApplicationError):
    """The application could not be put together: provider names or order are wrong."""

    code = "LEX_ERR_APP_002"


class AppShutdownError(ApplicationError):
    """Some providers or resources did not stop cleanly or in time; ``details`` names them."""

    code = "LEX_ERR_APP_003"
