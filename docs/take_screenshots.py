"""Take the screenshots of docs/console.md with a headless Chromium and the models in model_store/.

    python docs/take_screenshots.py [--more FOLDER] [--only NAME ...]

FOLDER is a store of further models; if it has a resnet50, the graph shown is that one. The screenshots ocr and sound
need its models ocr (examples/rapidocr.py, with docs/images/receipt.png in examples/) and silero (docs/sound.md). Look
at the screenshots before you commit them.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
IMAGES: Final = ROOT / "docs" / "images"
_REQUESTS: Final = 400


def main() -> None:
    """Serve the models, send some requests, and take a screenshot of every view."""
    from tests.app.console.browser import browsing
    from tests.app.console.conftest import serving

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0], allow_abbrev=False)
    parser.add_argument("--more", type=Path)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME")
    args = parser.parse_args()
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        shutil.copytree(ROOT / "model_store", store)
        if args.more is not None:
            shutil.copytree(args.more, store, dirs_exist_ok=True)
        large = "resnet50" if (store / "resnet50").is_dir() else "shapes"
        heard = Path(folder) / "heard.wav"
        _write_wav(heard)
        with serving(store) as (url, _), browsing(url, scale=1.5, microphone=heard) as browser:
            browser.size(1280, 800)
            browser.go("models")
            if not args.only:
                _send(url)
            views = (
                ("models", "models", ".model .spark", "light"),
                ("graph", f"graph/{large}", ".node.fold", "light"),
                ("try", "try/shapes", ".boxes text", "dark"),
                ("ocr", "try/ocr", ".places .found", "light"),
                ("sound", "try/silero", ".given .row .button + .button", "light"),
                ("profile", f"profile/{large}", ".tiles", "light"),
                ("compare", f"compare/{large}?entries={large},{large}::reference", ".versus button.primary", "light"),
                ("tune", "tune/digits?batch=1,4,8&winograd=auto,off", ".tune-form button.primary", "light"),
            )
            for name, route, sign, scheme in views:
                if args.only and name not in args.only:
                    continue
                browser.scheme(scheme)
                browser.size(1280, {"compare": 1280, "try": 1000, "ocr": 700, "sound": 640}.get(name, 800))
                if name != "models":
                    browser.go(route)
                browser.one(sign)
                if name == "graph":
                    browser.script(
                        "document.querySelector('.node.fold .plus').dispatchEvent(new Event('click', {bubbles: true}))"
                    )
                if name == "sound":
                    browser.click(sign)
                    browser.one(".made h2", "4 spans")
                if name in ("compare", "tune"):
                    browser.click(sign)
                    browser.one(".block [role=status]", "Measured" if name == "tune" else "Compared")
                if name == "compare":  # what is found lies below the form
                    browser.script(
                        "document.querySelector('.drift circle').dispatchEvent(new Event('click', {bubbles: true}));"
                        "scrollTo(0, document.querySelector('.versus-table').getBoundingClientRect().top - 110)"
                    )
                time.sleep(2.5)
                browser.picture(IMAGES / f"{name}.png")
                _shrink(IMAGES / f"{name}.png")


def _send(url: str) -> None:
    import httpx

    with httpx.Client(base_url=url) as client:
        for at in range(_REQUESTS):
            for name, picture in (("digits", f"digit-{at % 10}-a.png"), ("shapes", f"shapes-{'abcd'[at % 4]}.png")):
                content = (ROOT / "model_store" / name / "examples" / picture).read_bytes()
                client.post(f"/models/{name}/infer", content=content, headers={"content-type": "image/png"})
            time.sleep(0.02 if at % 100 < 60 else 0.06)


def _write_wav(path: Path) -> None:
    """Write the speech of the tests, which the browser's microphone hears."""
    import soundfile

    samples, rate = soundfile.read(ROOT / "tests" / "data" / "sound" / "speech.flac")
    soundfile.write(path, samples, rate, subtype="PCM_16")


def _shrink(path: Path) -> None:
    """Reduce a screenshot to a palette, which takes a third of the bytes."""
    from PIL import Image

    Image.open(path).convert("RGB").quantize(192, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    main()
