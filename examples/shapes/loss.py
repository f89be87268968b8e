"""Loss of the shapes network: each shape trains the anchors that match it best.

Source: Feng et al., TOOD: Task-aligned One-stage Object Detection, 2021, whose assignment YOLOv8 uses; Rezatofighi et
al., Generalized Intersection over Union, 2019.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

ANCHORS_A_SHAPE = 8
BOX_WEIGHT = 2.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """Boxes (N, most, 4) as corners, classes (N, most), and a mask (N, most) that is false for padding."""

    boxes: Tensor
    classes: Tensor
    present: Tensor


def detection_loss(corners: Tensor, logits: Tensor, centers: Tensor, truth: Truth) -> Tensor:
    """Return the loss of corners (N, 4, anchors) and logits (N, classes, anchors) from Detector.locate."""
    boxes, logits = corners.transpose(1, 2), logits.transpose(1, 2)
    wanted, owner = _assign(boxes.detach(), logits.detach().sigmoid(), centers, truth)
    total = wanted.sum().clamp(min=1)
    weight = wanted.sum(2)
    taught = truth.boxes.gather(1, owner[..., None].expand(-1, -1, 4))
    box_loss = ((1 - _overlap(boxes, taught, generalized=True)) * weight).sum()
    class_loss = F.binary_cross_entropy_with_logits(logits, wanted, reduction="sum")
    loss: Tensor = (BOX_WEIGHT * box_loss + class_loss) / total
    return loss


def _assign(boxes: Tensor, scores: Tensor, centers: Tensor, truth: Truth) -> tuple[Tensor, Tensor]:
    """Return target scores (N, anchors, classes), and the index of each anchor's shape (N, anchors)."""
    overlap = _overlap(truth.boxes[:, :, None], boxes[:, None])
    index = truth.classes[:, None].expand(-1, scores.shape[1], -1)
    # Not zero without overlap, or a shape would train no anchor at first.
    quality = scores.gather(2, index).transpose(1, 2).sqrt() * (overlap + 1e-3) ** 6
    quality = quality * _is_inside(centers, truth.boxes) * truth.present[:, :, None]
    best = quality.topk(ANCHORS_A_SHAPE, dim=2).indices
    quality = quality * torch.zeros_like(quality).scatter_(2, best, 1.0)
    # An anchor chosen by several shapes belongs to the one it overlaps most.
    owner = torch.where(quality > 0, overlap, -1.0).argmax(1)
    quality = quality * F.one_hot(owner, quality.shape[1]).transpose(1, 2)
    is_taught = quality > 0
    scale = (overlap * is_taught).amax(2, keepdim=True) / quality.amax(2, keepdim=True).clamp(min=1e-30)
    wanted = (quality * scale).amax(1)
    kinds = truth.classes.gather(1, owner)
    return F.one_hot(kinds, scores.shape[2]) * wanted[..., None], owner


def _is_inside(centers: Tensor, boxes: Tensor) -> Tensor:
    """Return which centers (2, anchors) lie in which boxes (N, most, 4): (N, most, anchors)."""
    x, y = centers
    x0, y0, x1, y1 = boxes[..., None].unbind(2)
    return (x > x0) & (x < x1) & (y > y0) & (y < y1)


def _overlap(a: Tensor, b: Tensor, generalized: bool = False) -> Tensor:
    """Return the intersection over union of corners (..., 4); generalized: negative for disjoint boxes."""
    (a_low, a_high), (b_low, b_high) = a.chunk(2, -1), b.chunk(2, -1)
    shared = (torch.minimum(a_high, b_high) - torch.maximum(a_low, b_low)).clamp(min=0).prod(-1)
    union = (a_high - a_low).prod(-1) + (b_high - b_low).prod(-1) - shared
    ratio = shared / union.clamp(min=1e-6)
    if not generalized:
        return ratio
    hull = (torch.maximum(a_high, b_high) - torch.minimum(a_low, b_low)).prod(-1)
    return ratio - (hull - union) / hull.clamp(min=1e-6)
