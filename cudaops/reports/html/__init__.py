"""One self-contained HTML file a run or a batch: tables, and charts as SVG, without script and
network.

Everything is a function of the finished record, its events, and what lies beside them (`Beside`).
"""

from cudaops.reports.html.render import (
    STYLE_FILE,
    batch_document,
    document,
    fragment_of,
    sections,
)
from cudaops.reports.html.tables import Beside, CertificateView, beside_of

__all__ = [
    "STYLE_FILE",
    "Beside",
    "CertificateView",
    "batch_document",
    "beside_of",
    "document",
    "fragment_of",
    "sections",
]
