"""The graphs that `langgraph.json` names, for LangGraph Studio and LangGraph's server.

One for each way to search, and one that waits for a person. Opening them reads no setting: those
are read when a run begins, in the folder that serves them.
"""

from __future__ import annotations

from cudaops.graph.studio import studio_graph
from cudaops.settings import load_settings

optimize = studio_graph(load_settings)
branch = studio_graph(load_settings, "branch")
beam = studio_graph(load_settings, "beam")
reviewed = studio_graph(load_settings, reviewed=True)
