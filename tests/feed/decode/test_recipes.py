"""The recipes that people train with: what of each is done while decoding, and that it gives what it gave."""

from typing import Any

import pytest
import torch
import torchvision.transforms as v1
from fusing import assert_same, jpeg, photos
from helpers import encoded, photo
from torch import nn
from torchvision import models
from torchvision.transforms import InterpolationMode, v2

import fastfeed
from fastfeed.feed.decode.images import Images
from fastfeed.feed.decode.known import name_of

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
BICUBIC = InterpolationMode.BICUBIC
FLOAT = ["ConvertImageDtype", "Normalize"]
FLOAT2 = ["ToDtype", "Normalize"]


class Preset:
    """As the presets of torchvision's references: an object that hands its image on."""

    def __init__(self, *steps: Any, compose: Any = v1.Compose) -> None:
        self.transforms = compose(list(steps))

    def __call__(self, img: Any) -> Any:
        return self.transforms(img)


class Talks(Preset):
    """It does more than hand its image on."""

    def __call__(self, img: Any) -> Any:
        self.last = img.size
        return self.transforms(img)


def _convert_to_rgb(image: Any) -> Any:
    return image.convert("RGB")


def train(*between: Any, kit: Any = v1, tensors: bool = False, behind: Any = ()) -> Preset:
    """torchvision/references/classification, training."""
    steps = [kit.RandomResizedCrop(96, interpolation=InterpolationMode.BILINEAR, antialias=True), kit.RandomHorizontalFlip(0.5)]
    to_float = [v2.ToDtype(torch.float, scale=True)] if kit is v2 else [v1.ConvertImageDtype(torch.float)]
    tensor = [kit.PILToTensor()]
    steps = [*tensor, *steps, *between] if tensors else [*steps, *between, *tensor]
    return Preset(*steps, *to_float, kit.Normalize(MEAN, STD), *behind, compose=kit.Compose)


def evaluate(kit: Any = v1, *, tensors: bool = False) -> Preset:
    """torchvision/references/classification, evaluation."""
    steps = [kit.Resize(120, interpolation=InterpolationMode.BILINEAR, antialias=True), kit.CenterCrop(96)]
    to_float = [v2.ToDtype(torch.float, scale=True)] if kit is v2 else [v1.ConvertImageDtype(torch.float)]
    steps = [kit.PILToTensor(), *steps] if tensors else [*steps, kit.PILToTensor()]
    pure = [v2.ToPureTensor()] if kit is v2 else []
    return Preset(*steps, *to_float, kit.Normalize(MEAN, STD), *pure, compose=kit.Compose)


CROP = ["RandomResizedCrop", "RandomHorizontalFlip"]
EVAL = ["Resize", "CenterCrop"]
TORCHVISION = {
    "train": (train(), [*CROP, "PILToTensor", *FLOAT], []),
    "train, v2": (train(kit=v2, behind=[v2.ToPureTensor()]), [*CROP, "PILToTensor", *FLOAT2, "ToPureTensor"], []),
    "train, tensors": (train(tensors=True), ["PILToTensor", *CROP, *FLOAT], []),
    "train, v2, tensors": (train(kit=v2, tensors=True), ["PILToTensor", *CROP, *FLOAT2], []),
    "train, TrivialAugment": (train(v1.TrivialAugmentWide()), CROP, ["TrivialAugmentWide", "PILToTensor", *FLOAT]),
    "train, RandAugment, v2, tensors": (
        train(v2.RandAugment(), kit=v2, tensors=True), ["PILToTensor", *CROP], ["RandAugment", *FLOAT2]
    ),
    "train, AutoAugment": (train(v1.AutoAugment()), CROP, ["AutoAugment", "PILToTensor", *FLOAT]),
    "train, AugMix": (train(v1.AugMix()), CROP, ["AugMix", "PILToTensor", *FLOAT]),
    "train, RandomErasing": (train(behind=[v1.RandomErasing(p=0.5)]), [*CROP, "PILToTensor", *FLOAT], ["RandomErasing"]),
    "train, RandomErasing, v2": (
        train(kit=v2, behind=[v2.RandomErasing(p=0.5), v2.ToPureTensor()]), [*CROP, "PILToTensor", *FLOAT2],
        ["RandomErasing", "ToPureTensor"],
    ),
    "eval": (evaluate(), [*EVAL, "PILToTensor", *FLOAT], []),
    "eval, v2": (evaluate(v2), [*EVAL, "PILToTensor", *FLOAT2, "ToPureTensor"], []),
    "eval, tensors": (evaluate(tensors=True), ["PILToTensor", *EVAL, *FLOAT], []),
    "eval, v2, tensors": (evaluate(v2, tensors=True), ["PILToTensor", *EVAL, *FLOAT2, "ToPureTensor"], []),
    "an object that does more": (Talks(v1.RandomResizedCrop(96)), [], ["Talks"]),
    "v2's page of introduction": (
        v2.Compose([v2.ToImage(), v2.ToDtype(torch.uint8, scale=True), v2.RandomResizedCrop((96, 96), antialias=True),
                    v2.RandomHorizontalFlip(p=0.5), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]),
        ["ToImage", "ToDtype", *CROP, *FLOAT2], [],
    ),
    "v2, blur behind": (
        v2.Compose([v2.ToImage(), v2.RandomResizedCrop(96), v2.RandomHorizontalFlip(1), v2.GaussianBlur(3)]),
        ["ToImage", *CROP], ["GaussianBlur"],
    ),
    "v2, RGB": (v2.Compose([v2.RGB(), v2.RandomCrop(96), v2.ToImage()]), ["RGB", "RandomCrop", "ToImage"], []),
    "v2, RGB of tensors": (v2.Compose([v2.ToImage(), v2.RGB(), v2.CenterCrop(96)]), ["ToImage", "RGB", "CenterCrop"], []),
    "flip between": (
        v2.Compose([v2.RandomResizedCrop(96), v2.ToImage(), v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True)]),
        ["RandomResizedCrop", "ToImage", "RandomHorizontalFlip", "ToDtype"], [],
    ),
    "Sequential": (
        nn.Sequential(v2.PILToTensor(), v1.RandomResizedCrop(96), v1.RandomVerticalFlip(), v1.ConvertImageDtype(torch.float)),
        ["PILToTensor", "RandomResizedCrop", "RandomVerticalFlip", "ConvertImageDtype"], [],
    ),
    "nested": (
        v1.Compose([v1.Compose([v1.RandomResizedCrop(96)]), nn.Sequential(v1.RandomHorizontalFlip()), v1.ToTensor()]),
        [*CROP, "ToTensor"], [],
    ),
    "v1 behind v2": (v1.Compose([v2.ToImage(), v1.RandomResizedCrop(96)]), ["ToImage"], ["RandomResizedCrop"]),
    "floats first": (
        v1.Compose([v1.ToTensor(), v1.RandomHorizontalFlip(), v1.RandomCrop(96), v1.Normalize(MEAN, STD)]),
        ["ToTensor", "RandomHorizontalFlip", "RandomCrop", "Normalize"], [],
    ),
    "floats first, resized": (
        v1.Compose([v1.ToTensor(), v1.Normalize(MEAN, STD), v1.RandomResizedCrop(96), v1.RandomHorizontalFlip()]),
        ["ToTensor", "Normalize", "RandomResizedCrop"], ["Resized", "RandomHorizontalFlip"],
    ),
    "floats first, resized, v2": (
        v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.RandomResizedCrop(96), v2.ToPureTensor()]),
        ["ToImage", "ToDtype", "RandomResizedCrop"], ["Resized", "ToPureTensor"],
    ),
    "floats first, all of it resized": (
        v1.Compose([v1.ToTensor(), v1.Resize(96), v1.CenterCrop(96)]), ["ToTensor"], ["Resize", "CenterCrop"],
    ),
    "floats between": (
        v2.Compose([v2.ToImage(), v2.RandomResizedCrop(96), v2.ToDtype(torch.float32, scale=True), v2.RandomHorizontalFlip(),
                    v2.Normalize(MEAN, STD)]),
        ["ToImage", "RandomResizedCrop", "ToDtype", "RandomHorizontalFlip", "Normalize"], [],
    ),
    "old page of ImageNet": (
        v1.Compose([v1.RandomResizedCrop(96), v1.RandomHorizontalFlip(), v1.ToTensor(), v1.Normalize(MEAN, STD)]),
        [*CROP, "ToTensor", "Normalize"], [],
    ),
    "colours between": (
        v1.Compose([v1.RandomResizedCrop(96), v1.ColorJitter(0.4, 0.4), v1.RandomHorizontalFlip(), v1.ToTensor()]),
        ["RandomResizedCrop"], ["ColorJitter", "RandomHorizontalFlip", "ToTensor"],
    ),
    "CIFAR": (
        v1.Compose([v1.RandomCrop(32, padding=4), v1.RandomHorizontalFlip(), v1.ToTensor()]),
        [], ["RandomCrop", "RandomHorizontalFlip", "ToTensor"],
    ),
}  # fmt: skip
NORMALIZE = v1.Normalize((0.481, 0.458, 0.408), (0.269, 0.261, 0.276))
OPEN_CLIP = {
    "open_clip, train": (
        v1.Compose([v1.RandomResizedCrop(96, (0.9, 1.0), interpolation=BICUBIC), _convert_to_rgb, v1.ToTensor(), NORMALIZE]),
        ["RandomResizedCrop", "_convert_to_rgb", "ToTensor", "Normalize"], [],
    ),
    "open_clip, train with colours": (
        v1.Compose([v1.RandomResizedCrop(96, interpolation=BICUBIC), _convert_to_rgb,
                    v1.RandomApply([v1.ColorJitter(0.3, 0.3, 0.3, 0.1)], p=0.8), v1.ToTensor(), NORMALIZE]),
        ["RandomResizedCrop", "_convert_to_rgb"], ["RandomApply", "ToTensor", "Normalize"],
    ),
    "open_clip, eval": (
        v1.Compose([v1.Resize(96, interpolation=BICUBIC), v1.CenterCrop(96), _convert_to_rgb, v1.ToTensor(), NORMALIZE]),
        [*EVAL, "_convert_to_rgb", "ToTensor", "Normalize"], [],
    ),
    "open_clip, squashed": (
        v1.Compose([v1.Resize((96, 96), interpolation=BICUBIC), v1.Lambda(lambda image: image.convert("RGB")), v1.ToTensor()]),
        ["Resize", "<lambda>", "ToTensor"], [],
    ),
}  # fmt: skip
COLOURS = [v1.RandomApply([v1.ColorJitter(0.8, 0.8, 0.8, 0.2)], p=0.8), v1.RandomGrayscale(p=0.2), v1.ToTensor()]


def view(size: int, *scale: float, behind: Any = ()) -> v1.Compose:
    crop = v1.RandomResizedCrop(size, scale, interpolation=BICUBIC)
    return v1.Compose([crop, v1.RandomHorizontalFlip(), *(behind or [v1.ToTensor(), v1.Normalize(MEAN, STD)])])


MANY = {
    "SimCLR": (fastfeed.Views(*[view(96, 0.08, 1.0, behind=COLOURS)] * 2), [CROP] * 2),
    "SimCLR, colours later": (fastfeed.Views(*[view(96, 0.08, 1.0)] * 2), [[*CROP, "ToTensor", "Normalize"]] * 2),
    "DINO": (
        fastfeed.Views(*[view(96, 0.4, 1.0, behind=COLOURS)] * 2, *[view(48, 0.05, 0.4, behind=COLOURS)] * 6), [CROP] * 8,
    ),
    "DINO, colours later": (
        fastfeed.Views(*[view(96, 0.4, 1.0)] * 2, *[view(48, 0.05, 0.4)] * 6), [[*CROP, "ToTensor", "Normalize"]] * 8,
    ),
    "one that is not known": (fastfeed.Views(view(48, 0.1, 0.2), v1.Grayscale()), [[*CROP, "ToTensor", "Normalize"], []]),
    "one that may not fit": (
        fastfeed.Views(
            v1.Compose([v1.RandomResizedCrop(40), v1.RandomCrop(48, pad_if_needed=True), v1.ToTensor()]), view(32, 0.1, 1)
        ),
        [["RandomResizedCrop", "RandomCrop", "ToTensor"], [*CROP, "ToTensor", "Normalize"]],
    ),
}  # fmt: skip


def same_on_some(images: Images) -> None:
    for seed, data in enumerate(
        [jpeg((260, 210)), jpeg((150, 260), "L"), jpeg((99, 300), subsampling="4:2:2", progressive=True)]
    ):
        for number in range(4):
            assert_same(images, data, 10 * seed + number)
    assert_same(images, encoded(photo(1, (200, 150)), "PNG"))


def check(transform: Any, names: list[str], rest: list[str]) -> None:
    images = Images(transform, "exact")
    assert list(images.recipe.names) == names
    assert [name_of(own) for own in images.recipe.tail] == rest
    assert (images.batch is not None) == (not rest and images.recipe.shape is not None)
    assert images.fuses == bool(names)
    assert (images.recipe.why_not is None) == (not rest)
    told = " ".join(images.told())
    assert all(name in told for name in names) and (not rest or rest[0][:6] in told)
    if names:
        same_on_some(images)


@pytest.mark.parametrize("name", TORCHVISION)
def test_torchvision_references(name):
    check(*TORCHVISION[name])


@pytest.mark.parametrize("name", OPEN_CLIP)
def test_open_clip(name):
    check(*OPEN_CLIP[name])


@pytest.mark.parametrize("weights", [
    models.ResNet50_Weights.IMAGENET1K_V1, models.ResNet50_Weights.IMAGENET1K_V2, models.ViT_B_16_Weights.IMAGENET1K_V1,
    models.ViT_B_16_Weights.IMAGENET1K_SWAG_E2E_V1, models.EfficientNet_B0_Weights.IMAGENET1K_V1,
    models.EfficientNet_V2_S_Weights.IMAGENET1K_V1, models.ConvNeXt_Tiny_Weights.IMAGENET1K_V1,
    models.Swin_T_Weights.IMAGENET1K_V1, models.Inception_V3_Weights.IMAGENET1K_V1, models.MobileNet_V3_Small_Weights.DEFAULT,
], ids=str)  # fmt: skip
def test_transforms_of_weights(weights):
    check(weights.transforms(), [*EVAL, "PILToTensor", *FLOAT], [])


@pytest.mark.parametrize("name", MANY)
def test_many_views_of_one_decode(name):
    transform, names = MANY[name]
    images = Images(transform, "exact")
    assert [list(recipe.names) for recipe in images.recipe.views] == names
    same_on_some(images)


RRCI = "RandomResizedCropAndInterpolation"
TIMM: dict[str, tuple[dict[str, Any], list[str], list[str]]] = {
    "train": ({"is_training": True}, [RRCI, "RandomHorizontalFlip"], ["ColorJitter", "MaybeToTensor", "Normalize"]),
    "train, no colours": (
        {"is_training": True, "color_jitter": None}, [RRCI, "RandomHorizontalFlip", "MaybeToTensor", "Normalize"], [],
    ),
    "train, both flips, bicubic": (
        {"is_training": True, "color_jitter": None, "vflip": 0.5, "interpolation": "bicubic"},
        [RRCI, "RandomHorizontalFlip", "RandomVerticalFlip", "MaybeToTensor", "Normalize"], [],
    ),
    "train, random interpolation": (
        {"is_training": True, "interpolation": "random", "auto_augment": "rand-m9-mstd0.5-inc1"},
        [RRCI, "RandomHorizontalFlip"], ["RandAugment", "MaybeToTensor", "Normalize"],
    ),
    "train, prefetcher": (
        {"is_training": True, "color_jitter": None, "use_prefetcher": True},
        [RRCI, "RandomHorizontalFlip", "MaybePILToTensor"], [],
    ),
    "train, random erasing": (
        {"is_training": True, "color_jitter": None, "re_prob": 0.5},
        [RRCI, "RandomHorizontalFlip", "MaybeToTensor", "Normalize"], ["RandomErasing"],
    ),
    "train, ratio kept": (
        {"is_training": True, "color_jitter": None, "train_crop_mode": "rkrc"},
        [], ["ResizeKeepRatio", "CenterCropOrPad", "RandomHorizontalFlip", "MaybeToTensor", "Normalize"],
    ),
    "eval": ({}, [*EVAL, "MaybeToTensor", "Normalize"], []),
    "eval, bicubic, all of it": ({"interpolation": "bicubic", "crop_pct": 1.0}, [*EVAL, "MaybeToTensor", "Normalize"], []),
    "eval, prefetcher": ({"use_prefetcher": True}, [*EVAL, "MaybePILToTensor"], []),
    "eval, squashed": ({"crop_mode": "squash"}, [*EVAL, "MaybeToTensor", "Normalize"], []),
    "eval, border": (
        {"crop_mode": "border"}, [], ["ResizeKeepRatio", "CenterCropOrPad", "MaybeToTensor", "Normalize"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TIMM)
def test_timm(name):
    data = pytest.importorskip("timm.data", reason="timm is not installed")
    options, names, rest = TIMM[name]
    check(data.create_transform(96, **options), names, rest)


def test_a_recipe_on_real_photos():
    images = Images(TORCHVISION["train, v2, tensors"][0], "auto")
    for number, path in enumerate(photos(50)):
        assert_same(images, path.read_bytes(), number, name=path.name)
