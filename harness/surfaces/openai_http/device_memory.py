"""What each of two servers holds of the GPU's memory: what is gone since the other one was looked at."""

from __future__ import annotations

from hillclimb.harness.device.device import Device


class DeviceMemory:
    """Of one pair, whose servers run in turns. On a CPU nothing is held."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self.is_told = device.kind == "cuda"
        self.bytes_of: dict[str, int] = {}
        """By letter, when its turn was last over."""
        self._available = device.available_bytes()

    def note(self, letter: str) -> None:
        """This one has run alone since the last call, or since there was none."""
        available = self._device.available_bytes()
        self.bytes_of[letter] = self.bytes_of.get(letter, 0) + self._available - available
        self._available = available
