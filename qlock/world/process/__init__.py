"""Child processes: started with everything said, and never left behind.

Lives here: what every child has in common (``child``), children that are spoken to in lines (``lines``), and servers
that are spoken to over a socket (``server``), and tools
that do one thing and end (``tool``). ``subprocess`` is imported nowhere else. Does not live here: what the
lines and the requests mean (``world.render``, the engines).

What a child is given is complete: its command line, its environment (nothing is inherited), its folder, its
limits. It leads a session of its own, so that a Ctrl-C at the terminal reaches qlock alone and one signal
reaches all that the child started. The kernel kills it when qlock dies, however qlock dies; for processes that the
child starts itself, the child must see to that.

NOTE: Linux sends that signal when the *thread* that started the child ends. Start children from a thread that
outlives them (the main thread).
"""

from __future__ import annotations

from qlock.world.process.child import Ended, Limits
from qlock.world.process.holder import Holder, holder_in, is_gone, this_process
from qlock.world.process.lines import Flooded, Heard, LineChild, Silent
from qlock.world.process.server import ServerChild
from qlock.world.process.tool import ToolEnded, call_tool

__all__ = [
    "Ended",
    "Flooded",
    "Heard",
    "Holder",
    "Limits",
    "LineChild",
    "ServerChild",
    "Silent",
    "ToolEnded",
    "call_tool",
    "holder_in",
    "is_gone",
    "this_process",
]
