from __future__ import annotations

from typing import Any

import pytest

from colane.workloads import catalogue
from tests.needs import needs

needs("torch", "the built-in trainer needs PyTorch")


def conv(inputs: int, outputs: int, side: int) -> int:
    """Parameters of a convolution without bias, and its batch norm."""
    return inputs * outputs * side * side + 2 * outputs


def resnet18() -> int:
    """He et al. 2015, table 1: 3 x 3 stem, four stages of two blocks, projections where the shape changes."""
    total, inputs = conv(3, 64, 3), 64
    for channels in (64, 128, 256, 512):
        total += conv(inputs, channels, 3) + 3 * conv(channels, channels, 3)
        total += conv(inputs, channels, 1) if inputs != channels else 0
        inputs = channels
    return total + 512 * 10 + 10


def resnet50() -> int:
    """He et al. 2015, table 1: bottlenecks (1 x 1, 3 x 3, 1 x 1 to four times the channels), 3, 4, 6, 3 of them."""
    total, inputs = conv(3, 64, 3), 64
    for channels, blocks in zip((64, 128, 256, 512), (3, 4, 6, 3), strict=True):
        total += conv(inputs, 4 * channels, 1)
        for _ in range(blocks):
            total += conv(inputs, channels, 1) + conv(channels, channels, 3) + conv(channels, 4 * channels, 1)
            inputs = 4 * channels
    return total + 2048 * 10 + 10


def se_resnet18() -> int:
    """Hu et al. 2017, eq. 7: 2 / r * sum of N_s * C_s^2 more, r = 16, two blocks a stage."""
    return resnet18() + sum(2 * 2 * channels**2 // 16 for channels in (64, 128, 256, 512))


def vgg(*channels: int) -> int:
    """Simonyan and Zisserman 2014, table 1, with batch norm and hidden layers of 4096 over 512 features."""
    pairs = zip((3, *channels), channels, strict=False)
    features = sum(conv(inputs, outputs, 3) + outputs for inputs, outputs in pairs)
    return features + (512 + 1) * 4096 + (4096 + 1) * 4096 + (4096 + 1) * 10


PUBLISHED = {
    "resnet18": (11_173_962, resnet18()),
    "resnet50": (23_520_842, resnet50()),
    "se_resnet18": (11_261_002, se_resnet18()),
    "vgg11": (28_149_514, vgg(64, 128, 256, 256, 512, 512, 512, 512)),
    "vgg19": (38_958_922, vgg(64, 64, 128, 128, *(256,) * 4, *(512,) * 8)),
}


@pytest.mark.parametrize("name", catalogue.MODELS)
def test_parameter_counts_are_those_of_the_published_layouts(name: str, models: Any) -> None:
    published, computed = PUBLISHED[name]
    assert models.parameters(models.build(name)) == published == computed


@pytest.mark.parametrize("name", catalogue.MODELS)
@pytest.mark.parametrize("side", [None, 48])
def test_the_smallest_images_and_batches_can_be_trained_on(
    name: str, side: int | None, models: Any, torch: Any
) -> None:
    model = models.build(name, num_class=7, width=0.05)
    side = side or catalogue.IMAGE_SIDES_MIN[name]
    scores = model(torch.rand(1, 3, side, side))
    assert scores.shape == (1, 7)
    scores.sum().backward()
    assert all(each.grad is not None for each in model.parameters())


@pytest.mark.parametrize("name", catalogue.MODELS)
def test_width_scales_the_parameters_about_quadratically(name: str, models: Any) -> None:
    ratio = models.parameters(models.build(name, width=0.5)) / models.parameters(models.build(name))
    assert 0.24 < ratio < 0.27
