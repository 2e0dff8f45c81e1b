"""What a run is shown as: tables, pictures, one HTML page, a Chrome trace, a capture for Wireshark.

Everything reads a `Result` and nothing else, so that a saved result can be shown on another machine. Pictures need
matplotlib, which is loaded when one is asked for.
"""

from dlcp_sim.report.chrome_trace import write_chrome_trace
from dlcp_sim.report.page import write_report
from dlcp_sim.report.pcap import write_pcap
from dlcp_sim.report.tables import Table, comparison

__all__ = ["Table", "comparison", "write_chrome_trace", "write_pcap", "write_report"]
