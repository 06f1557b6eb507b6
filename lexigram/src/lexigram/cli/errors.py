"""What can go wrong in the command line itself."""

from __future__ import annotations

from typing import ClassVar

from lexigram.cli.exit_codes import ExitCode
from lexigram.contracts.core.errors import LexigramError


class CliError(LexigramError):
    """A command was asked for something it cannot do."""

    code = "LEX_ERR_CLI_001"
    exit_code: ClassVar[ExitCode] = ExitCode.USAGE


class TargetError(CliError):
    """MODULE:APP does not lead to an application."""

    code = "LEX_ERR_CLI_002"


class ContributorError(CliError):
    """What a contributor named could not be loaded, or is not what it should be."""

    code = "LEX_ERR_CLI_003"
    exit_code: ClassVar[ExitCode] = ExitCode.FAILURE
