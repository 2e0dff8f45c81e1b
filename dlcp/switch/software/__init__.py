"""The software switch: the switch policy carried out live between network interfaces of one host.

`SoftwareSwitch` is one in this process; `start` runs one in a process of its own (in a network namespace, if its
`prefix` goes there), `connect` reaches one that runs. What forwards is native/softswitch; here are names, files and the
control socket.
"""

from dlcp.switch.software.control import Control, connect
from dlcp.switch.software.errors import SwitchError
from dlcp.switch.software.process import SwitchProcess, start
from dlcp.switch.software.switch import SoftwareSwitch, SwitchOptions

__all__ = ["Control", "SoftwareSwitch", "SwitchError", "SwitchOptions", "SwitchProcess", "connect", "start"]
