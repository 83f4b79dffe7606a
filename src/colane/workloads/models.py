"""The five models of paper A as they are trained on CIFAR: first convolution 3 x 3, no first pooling.

Layouts and parameter counts at 10 classes and width 1:

* ResNet-18 (11,173,962), ResNet-50 (23,520,842): He et al. 2015, table 1, with the CIFAR stem.
* SE-ResNet-18 (11,261,002): Hu et al. 2017, reduction 16, squeeze layers without bias (their section 6).
* VGG-11 (28,149,514), VGG-19 (38,958,922): Simonyan and Zisserman 2014, configurations A and E, with batch
  norm and their two hidden layers of 4096 over 512 features. In the paper's figure 4.2 both VGGs have more
  parameters than the ResNets: so they have with this classifier, and not with a single linear layer.

`width` scales every hidden layer, for machines without a GPU; the layout stays.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn

VGG_LAYOUTS: dict[str, tuple[int | str, ...]] = {
    "vgg11": (64, "M", 128, "M", 256, 256, "M", 512, 512, "M", 512, 512, "M"),
    "vgg19": (64, 64, "M", 128, 128, "M", *(256,) * 4, "M", *(512,) * 4, "M", *(512,) * 4, "M"),
}
VGG_HIDDEN = 4096
STAGES = (64, 128, 256, 512)
SE_REDUCTION = 16


def build(name: str, num_class: int = 10, width: float = 1.0) -> nn.Module:
    """Build a model by its catalogue name.

    Args:
        name: one of `catalogue.MODELS`.
        num_class: outputs; the model maps (batch, 3, side, side) to (batch, num_class).
        width: factor on the channels of every hidden layer, at least one channel each.
    """
    scale = partial(_scaled, width)
    if name in VGG_LAYOUTS:
        return vgg(VGG_LAYOUTS[name], num_class, scale)
    blocks = {"resnet18": BasicBlock, "se_resnet18": SqueezeBasicBlock, "resnet50": Bottleneck}
    counts = (3, 4, 6, 3) if name == "resnet50" else (2, 2, 2, 2)
    return resnet(blocks[name], counts, num_class, scale)


def parameters(model: nn.Module) -> int:
    """Count the trainable parameters."""
    return sum(each.numel() for each in model.parameters() if each.requires_grad)


def _scaled(width: float, channels: int) -> int:
    return max(1, round(channels * width))


def _conv(inputs: int, outputs: int, side: int, stride: int = 1) -> tuple[nn.Module, nn.Module]:
    """Return a convolution that keeps the image's size (but for its stride), and its batch norm."""
    conv = nn.Conv2d(inputs, outputs, side, stride=stride, padding=side // 2, bias=False)
    return conv, nn.BatchNorm2d(outputs)


class SqueezeExcitation(nn.Module):  # type: ignore[misc]  # torch is not typed here
    """Weighs each channel by a look at all of them (Hu et al. 2017, section 3)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        hidden = max(1, channels // SE_REDUCTION)
        self.weigh = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(channels, hidden, bias=False),
            nn.ReLU(inplace=True),
            nn.Linear(hidden, channels, bias=False),
            nn.Sigmoid(),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Map (batch, channels, height, width) to the same shape."""
        weights: Tensor = self.weigh(images)
        return images * weights[:, :, None, None]


class Residual(nn.Module):  # type: ignore[misc]  # torch is not typed here
    """A body, and a way around it: the identity, or a projection where the shape changes."""

    expansion = 1

    def __init__(self, body: nn.Module, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = body
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else nn.Sequential(*_conv(inputs, outputs, 1, stride))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, images: Tensor) -> Tensor:
        """Map (batch, inputs, h, w) to (batch, outputs, h / stride, w / stride)."""
        out: Tensor = self.relu(self.body(images) + self.shortcut(images))
        return out


class BasicBlock(Residual):
    """Two 3 x 3 convolutions."""

    def __init__(self, inputs: int, channels: int, stride: int) -> None:
        first, second = _conv(inputs, channels, 3, stride), _conv(channels, channels, 3)
        body = nn.Sequential(*first, nn.ReLU(inplace=True), *second, *self.after(channels))
        super().__init__(body, inputs, channels, stride)

    @staticmethod
    def after(_channels: int) -> tuple[nn.Module, ...]:
        """Return what follows the second convolution."""
        return ()


class SqueezeBasicBlock(BasicBlock):
    """Two 3 x 3 convolutions, then squeeze and excitation."""

    @staticmethod
    def after(channels: int) -> tuple[nn.Module, ...]:
        """Return what follows the second convolution."""
        return (SqueezeExcitation(channels),)


class Bottleneck(Residual):
    """1 x 1 down, 3 x 3, 1 x 1 up to four times the channels; the stride lies in the 3 x 3."""

    expansion = 4

    def __init__(self, inputs: int, channels: int, stride: int) -> None:
        outputs = channels * self.expansion
        down, middle = _conv(inputs, channels, 1), _conv(channels, channels, 3, stride)
        up = _conv(channels, outputs, 1)
        body = nn.Sequential(*down, nn.ReLU(inplace=True), *middle, nn.ReLU(inplace=True), *up)
        super().__init__(body, inputs, outputs, stride)


def resnet(
    block: Callable[[int, int, int], Residual],
    counts: tuple[int, ...],
    num_class: int,
    scale: Callable[[int], int],
) -> nn.Module:
    """Build a ResNet of four stages with `counts` blocks each."""
    inputs = scale(STAGES[0])
    layers: list[nn.Module] = [*_conv(3, inputs, 3), nn.ReLU(inplace=True)]
    for stage, (channels, count) in enumerate(zip(map(scale, STAGES), counts, strict=True)):
        for index in range(count):
            built = block(inputs, channels, 2 if stage and index == 0 else 1)
            inputs = channels * built.expansion
            layers.append(built)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, num_class))


def vgg(layout: tuple[int | str, ...], num_class: int, scale: Callable[[int], int]) -> nn.Module:
    """Build a VGG with batch norm from its configuration: channels of a convolution, or "M" for pooling."""
    layers: list[nn.Module] = []
    inputs = 3
    for entry in layout:
        if isinstance(entry, str):
            layers.append(nn.MaxPool2d(2))
            continue
        outputs = scale(entry)
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
        inputs = outputs
    hidden = scale(VGG_HIDDEN)
    return nn.Sequential(
        *layers,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        *(nn.Linear(inputs, hidden), nn.ReLU(inplace=True), nn.Dropout()),
        *(nn.Linear(hidden, hidden), nn.ReLU(inplace=True), nn.Dropout()),
        nn.Linear(hidden, num_class),
    )
