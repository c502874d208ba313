"""benchmarks/gpuprofile.py on a GPU."""

import pytest
import torch
from gpus import gpu

from benchmarks import gpuprofile

pytestmark = pytest.mark.gpu


def test_kernels_of_the_model_and_copies_beside_them_are_told_apart():
    device = gpu()
    side = torch.cuda.Stream(device)
    left = torch.rand(2048, 2048, device=device)
    host = torch.empty(8 << 20, dtype=torch.uint8, pin_memory=True)

    def steps(count: int) -> None:
        for _ in range(count):
            for _ in range(20):
                left.mm(left)
            with torch.cuda.stream(side):
                host.to(device, non_blocking=True)
        torch.cuda.synchronize(device)

    steps(1)
    found = gpuprofile.recorded(steps, 5)
    assert found["model_ms"] > found["beside_ms"][gpuprofile.COPIES] > 0
    assert found["model_ms"] + found["gaps_ms"] == pytest.approx(found["step_ms"], rel=0.05)
    assert found["beside_ms"][gpuprofile.DECODING] == 0
