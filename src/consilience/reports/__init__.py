"""Pages and figures for people, made from a run's directory alone."""

from consilience.reports.page import Section, render_page
from consilience.reports.run_report import write_report

__all__ = ["Section", "render_page", "write_report"]
