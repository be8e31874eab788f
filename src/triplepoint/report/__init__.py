"""A finished run folder -> one HTML file that needs nothing else: records and manifest in, page out."""

from triplepoint.report.page import render as render
from triplepoint.report.page import write_report as write_report
