"""Task detection: one module for each decoder, listed in ``decoders.py``.

Most decoders take views of the outputs as candidates (``candidates.py``), which are then selected alike: threshold,
mapping to the picture, non-maximum suppression.
"""

from app.tasks.images.detection.task import DetectionTask

__all__ = ["DetectionTask"]
