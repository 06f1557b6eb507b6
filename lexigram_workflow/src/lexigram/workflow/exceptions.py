"""The import path of the errors in the 0.1 line."""

from lexigram.workflow.errors import *  # noqa: F403 - the same names, at the path users know
from lexigram.workflow.errors import __all__  # noqa: F401 - and the same list
