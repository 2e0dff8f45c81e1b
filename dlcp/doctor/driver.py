"""Whether dlcp has a driver below the kernel, and whether that matters here."""

from __future__ import annotations

from dlcp.doctor.finding import Finding, Topic
from dlcp.transport import Settings, plugins

DPDK, XDP = Topic("dpdk"), Topic("xdp")
"""What is said of a driver; the topic's name is the driver's."""


def look_at_driver(topic: Topic, settings: Settings, lack: plugins.Lack | None, what: str) -> Finding:
    """Whether dlcp has the driver. `lack`: why not. `what`: what it is for."""
    asked = settings.network_driver == topic.name
    how = f"driver is {settings.driver}"
    if lack is not None:
        text = f"{how}, and {lack.text}" if asked else f"{lack.text}; only driver {topic.name} needs it"
        return topic.lack(asked, text, lack.remedy)
    return topic.ok(
        f"dlcp has its driver for {what}; {how if asked else f'DLCP_DRIVER={topic.name} would use it'}"
    )
