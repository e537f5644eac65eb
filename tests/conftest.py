"""What every test is run under."""

from __future__ import annotations

import signal

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # a job put into the background by a script inherits that, and so would the programs that tests interrupt
    signal.signal(signal.SIGINT, signal.default_int_handler)
