"""A module that leaves a thread running, which no zygote may import."""

import threading

threading.Thread(target=threading.Event().wait, daemon=True).start()
