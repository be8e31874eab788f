"""Logs that other tools wrote -> the loss and accuracy curves in them. No torch."""

from triplepoint.logs.columns import ROLES as ROLES
from triplepoint.logs.reading import Log as Log
from triplepoint.logs.reading import read_log as read_log

__all__ = ["ROLES", "Log", "read_log"]
