"""Networks that are measured, with their inputs; torch is imported only to build one.

Widths, depths and kernel sizes are those of torchvision and ultralytics; the weights are random, from a fixed seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A network and the input it is measured with.

    Args:
        name: also the name of its folder.
        module, make: a module of this package and the function in it that makes the network.
        shape: of its only input at batch 1, which is one item, or as many as the first number says.
        vocabulary: the input is indices below this number (int64); 0 for float32 values.
        has_columns: the columns of the output measure different things, so each has its own largest magnitude.
        group: what ``--networks`` can ask for instead of names.
    """

    name: str
    module: str
    make: str
    shape: tuple[int, ...]
    vocabulary: int = 0
    has_columns: bool = False
    group: str = "vision"

    def make_module(self) -> Any:
        """Return the torch.nn.Module with whatever weights PyTorch gives it; the stored ones can be loaded into it."""
        return getattr(import_module(f"benchmarks.networks.{self.module}"), self.make)()

    def build(self) -> Any:
        """Return the torch.nn.Module in evaluation mode, always with the same weights."""
        from benchmarks.networks.weights import settled  # needs torch

        return settled(self.make_module, self)


def _pictures(size: int, channels: int = 3) -> tuple[int, ...]:
    return (1, channels, size, size)


_ALL: Final = (
    Network(name="resnet18", module="resnet", make="resnet18", shape=_pictures(224)),
    Network(name="mobilenet_v2", module="mobilenet", make="mobilenet_v2", shape=_pictures(224)),
    Network(name="resnet50", module="resnet", make="resnet50", shape=_pictures(224)),
    Network(name="mobilenet_v3_small", module="mobilenet", make="mobilenet_v3_small", shape=_pictures(224)),
    Network(name="squeezenet1_1", module="plain", make="squeezenet1_1", shape=_pictures(224)),
    Network(name="vgg11", module="plain", make="vgg11", shape=_pictures(224)),
    Network(name="shufflenet_v2_x1_0", module="shufflenet", make="shufflenet_v2_x1_0", shape=_pictures(224)),
    Network(name="efficientnet_b0", module="efficientnet", make="efficientnet_b0", shape=_pictures(224)),
    Network(name="densenet121", module="densenet", make="densenet121", shape=_pictures(224)),
    Network(name="unet_256", module="unet", make="unet", shape=_pictures(256)),
    Network(name="yolov5n", module="yolov5", make="yolov5n", shape=_pictures(640), has_columns=True),
    Network(name="yolov5s", module="yolov5", make="yolov5s", shape=_pictures(640), has_columns=True),
    Network(name="espcn", module="superres", make="espcn", shape=_pictures(224, channels=1)),
    Network(
        name="bert_mini_128",
        module="language",
        make="bert_mini",
        shape=(1, 128),
        vocabulary=30522,
        group="transformers",
    ),
    Network(
        name="bert_base_128",
        module="language",
        make="bert_base",
        shape=(1, 128),
        vocabulary=30522,
        group="transformers",
    ),
    Network(
        name="minilm_l6_128",
        module="language",
        make="minilm_l6",
        shape=(1, 128),
        vocabulary=30522,
        group="transformers",
    ),
    Network(
        name="gpt_small_128",
        module="language",
        make="gpt_small",
        shape=(1, 128),
        vocabulary=8192,
        group="transformers",
    ),
    Network(name="vit_tiny_224", module="vit", make="vit_tiny", shape=_pictures(224), group="transformers"),
    Network(name="vit_b16_224", module="vit", make="vit_b16", shape=_pictures(224), group="transformers"),
    Network(name="swin_tiny_224", module="swin", make="swin_tiny", shape=_pictures(224), group="transformers"),
    Network(
        name="convnext_tiny_224", module="convnext", make="convnext_tiny", shape=_pictures(224), group="transformers"
    ),
    Network(
        name="whisper_tiny_encoder",
        module="whisper",
        make="whisper_tiny_encoder",
        shape=(1, 80, 3000),
        group="transformers",
    ),
    Network(
        name="masked_attention_384",
        module="attention",
        make="masked_attention",
        shape=(1, 3, 12, 384, 64),
        group="transformers",
    ),
    Network(
        name="padded_attention_384",
        module="attention",
        make="padded_attention",
        shape=(1, 3, 12, 384, 64),
        group="transformers",
    ),
    Network(
        name="window_attention_384",
        module="attention",
        make="window_attention",
        shape=(1, 3, 12, 384, 64),
        group="transformers",
    ),
    Network(
        name="summed_attention_3136",
        module="attention",
        make="summed_attention",
        shape=(1, 3, 3136, 3, 64),
        group="transformers",
    ),
    Network(name="lstm_tagger_100", module="sequences", make="lstm_tagger", shape=(1, 100, 64), group="recurrent"),
    Network(
        name="gru_classifier_100", module="sequences", make="gru_classifier", shape=(1, 100, 64), group="recurrent"
    ),
    Network(
        name="lstm_classifier_100", module="sequences", make="lstm_classifier", shape=(1, 100, 64), group="recurrent"
    ),
    Network(name="gru_tagger_100", module="sequences", make="gru_tagger", shape=(1, 100, 64), group="recurrent"),
    Network(name="lstm_wide_50", module="sequences", make="lstm_wide", shape=(1, 50, 512), group="recurrent"),
    Network(name="crnn_100", module="text", make="crnn", shape=(1, 1, 32, 100), group="recurrent"),
    Network(name="dbnet_640", module="text", make="dbnet", shape=_pictures(640), group="others"),
    Network(name="letters_400", module="speech", make="letters", shape=(1, 80, 400), group="others"),
    Network(name="vits_60", module="synthesis", make="vits", shape=(1, 60), vocabulary=178, group="others"),
    Network(name="tcn_500", module="speech", make="tcn", shape=(1, 64, 500), group="others"),
    Network(name="ultraface_320", module="ultraface", make="ultraface", shape=(1, 3, 240, 320), group="others"),
    Network(name="dcgan_generator", module="dcgan", make="generator", shape=(1, 100, 1, 1), group="others"),
    Network(name="wide_mlp", module="mlp", make="wide_mlp", shape=(1, 2048), group="others"),
    Network(name="separation_16000", module="separation", make="tasnet", shape=(1, 1, 16_000), group="others"),
    Network(name="points_1024", module="points", make="pointnet", shape=(1, 3, 1024), group="others"),
    Network(
        name="resnet_of_volumes", module="volumes", make="resnet_of_volumes", shape=(1, 3, 8, 112, 112), group="others"
    ),
    Network(name="unet_of_volumes", module="volumes", make="unet_of_volumes", shape=(1, 1, 32, 64, 64), group="others"),
    Network(name="branches_224", module="branches", make="mobileone_s0", shape=_pictures(224), group="others"),
    Network(name="resnext50_32x4d", module="resnet", make="resnext50", shape=_pictures(224), group="others"),
    Network(name="odd_picture", module="awkward", make="odd_picture", shape=(1, 3, 97, 131), group="awkward"),
    Network(name="odd_channels", module="awkward", make="odd_channels", shape=_pictures(112), group="awkward"),
    Network(name="dilated", module="awkward", make="dilated", shape=_pictures(96), group="awkward"),
    Network(name="groups_of_five", module="awkward", make="groups_of_five", shape=_pictures(96), group="awkward"),
    Network(name="batch_of_three", module="awkward", make="odd_picture", shape=(3, 3, 64, 64), group="awkward"),
    Network(name="hundred_tiny", module="awkward", make="hundred_tiny", shape=(1, 48), group="awkward"),
)
NETWORKS: Final = {network.name: network for network in _ALL}
GROUPS: Final = tuple(dict.fromkeys(network.group for network in _ALL))


def select(names: list[str]) -> list[Network]:
    """Return networks by name or by group, in the order of the catalogue.

    Args:
        names: of networks or groups; none for the group ``vision``, and ``all``.

    Raises:
        ValueError: a name is neither.
    """
    known = {*NETWORKS, *GROUPS, "all"}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"no such network: {', '.join(unknown)}; known are {', '.join([*NETWORKS, *GROUPS, 'all'])}")
    wanted = set(names or ["vision"])
    return [network for network in _ALL if wanted & {network.name, network.group, "all"}]
