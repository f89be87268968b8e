"""Record the texts that RapidOCR reads in its own pictures.

    pip install rapidocr onnxruntime
    python tests/data/pipelines/record_texts.py RAPIDOCR/python/tests/test_files

Pictures in writings that its model does not know are left out: what it makes of them is chance.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from rapidocr import RapidOCR

PICTURES = (
    "black_font_color_transparent.png", "ch_en_num.jpg", "empty_black.jpg", "en.jpg", "en_rec.jpg",
    "img_exif_orientation.jpg", "issue_170.png", "latin.jpg", "return_word_debug.jpg", "test_letterbox_like.jpg",
    "text_det.jpg", "text_vertical_words.png",
)  # fmt: skip

if __name__ == "__main__":
    engine = RapidOCR()
    texts = {name: list(engine(str(Path(sys.argv[1], name))).txts or ()) for name in PICTURES}
    made = json.dumps(texts, ensure_ascii=False, indent=1)
    Path(__file__).with_name("texts.json").write_text(f"{made}\n", encoding="utf-8")
