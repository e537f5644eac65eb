"""The operator in plain torch: each place of the destination finds its segment, and so its source."""

import torch


def run(
    source: torch.Tensor,
    source_offsets: torch.Tensor,
    destination_offsets: torch.Tensor,
    lengths: torch.Tensor,
    destination: torch.Tensor,
) -> None:
    place = torch.arange(len(destination), dtype=torch.int32, device=source.device)
    segment = torch.searchsorted(destination_offsets + lengths, place, right=True)
    destination.copy_(source[place + (source_offsets - destination_offsets)[segment]])
