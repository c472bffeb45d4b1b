"""A PyTorch model whose normalisation is the kernels of `rms_norm.py`, forward and backward, trained for some steps.

On a GPU the kernels run there, on PyTorch's stream; without one on the simulator.

python examples/torch_rms_norm.py
"""

from __future__ import annotations

import torch
from rms_norm import EPSILON, rms_norm

import mosaic_gpu

torch_rms_norm = mosaic_gpu.as_torch(rms_norm)


class RMSNorm(torch.nn.Module):
    """Rows of the last dimension divided by their root mean square, times a scale that is learned."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (..., features)."""
        return torch_rms_norm(x.flatten(0, -2), self.scale).reshape(x.shape)


class PlainRMSNorm(RMSNorm):
    """The same in PyTorch's own functions."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (..., features)."""
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPSILON) * self.scale


def train(norm: type[RMSNorm], steps: int, device: str) -> list[float]:
    """The losses of a small network that learns the sum of two sines."""
    torch.manual_seed(0)
    layers = [torch.nn.Linear(2, 64), norm(64), torch.nn.SiLU(), torch.nn.Linear(64, 1)]
    model = torch.nn.Sequential(*layers).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(steps):
        x = 4 * torch.rand(3, 16, 2, device=device) - 2
        loss = (model(x) - x.sin().sum(-1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main() -> None:
    """Trains with our kernels and with PyTorch's functions, and compares the losses."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    ours, plain = (train(norm, 20, device) for norm in (RMSNorm, PlainRMSNorm))
    print(f"loss: {ours[0]:.3f} at first, {ours[-1]:.3f} after {len(ours)} steps")
    print(f"largest difference from plain PyTorch: {max(abs(a - b) for a, b in zip(ours, plain, strict=True)):.1e}")


if __name__ == "__main__":
    main()
