"""A policy in the languages of ordinary switches, and onto Linux interfaces by tc.

    policy > check (what the system cannot do) > body of one language

system.py holds capabilities as data, queue.py what ordinary queues can do, one module each language; apply.py is
the only one that touches anything.
"""

from dlcp.switch.render.base import RENDERERS, Rendered, render
from dlcp.switch.render.caveat import Caveat, RenderError, Weight

__all__ = ["RENDERERS", "Caveat", "RenderError", "Rendered", "Weight", "render"]
