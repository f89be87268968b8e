"""A headless Chromium of Debian's, driven through Selenium; and what it should never have to say."""

from __future__ import annotations

import gzip
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.patience import PATIENCE_S
from tests.ports import unused_port

T = TypeVar("T")

AXE = Path(__file__).parent / "axe" / "axe.min.js.gz"
_SERIOUS = ("serious", "critical")


def missing() -> str | None:
    """Why there is no browser to drive; None where there is one."""
    for program in ("chromium", "chromedriver"):
        if shutil.which(program) is None:
            return f"needs {program} (apt install chromium chromium-driver)"
    try:
        import selenium  # noqa: F401
    except ImportError:
        return "needs selenium, of the test extra"
    return None


class Browser:
    """Browser window with the console of one server."""

    def __init__(self, driver: Any, url: str) -> None:
        self.driver = driver
        self.url = url

    def go(self, route: str) -> None:
        """Open a view in a newly loaded page, so that no state of the previous test is left."""
        self.driver.get("about:blank")
        self.driver.get(f"{self.url}/#/{route}")

    def all(self, selector: str) -> list[Any]:
        return list(self.driver.find_elements("css selector", selector))

    def one(self, selector: str, *texts: str) -> Any:
        """The element, once it is there, is shown and has these texts in it."""
        return self.wait(lambda: self._find(selector, texts), f"{selector} with {texts}")

    def text(self, selector: str, *texts: str) -> str:
        """Return the text of the element once it contains these texts."""
        return str(self.wait(lambda: self._words(self._find(selector, texts)), f"{selector} with {texts}"))

    def click(self, selector: str, text: str = "") -> None:
        """Click an element once it is there and not covered; retries if it moves or is redrawn."""
        from selenium.common.exceptions import ElementClickInterceptedException, ElementNotInteractableException

        def clicked() -> bool:
            found = self._find(selector, (text,))
            if found is None:
                return False
            self.script("arguments[0].scrollIntoView({block: 'center'})", found)
            try:
                found.click()
            except (ElementClickInterceptedException, ElementNotInteractableException):
                return False
            return True

        self.wait(clicked, f"a click at {selector} with {text!r}")

    def leads_to(self, part: str) -> None:
        """Waits until the address has this in it."""
        self.wait(lambda: part in self.driver.current_url, f"{part!r} in the address")

    def fits(self, width: int) -> None:
        """Waits until nothing of the page lies beside a window of this width."""
        self.wait(lambda: self.script("return document.documentElement.scrollWidth") <= width, "a page that fits")

    def _find(self, selector: str, texts: tuple[str, ...]) -> Any:
        return next((each for each in self.all(selector) if all(text in self._words(each) for text in texts)), None)

    @staticmethod
    def _words(found: Any) -> str:
        return "" if found is None else str(found.text or found.get_attribute("textContent"))

    def script(self, text: str, *arguments: Any) -> Any:
        return self.driver.execute_script(text, *arguments)

    def wait(self, look: Callable[[], T | None], what: str) -> T:
        """Return the result of ``look`` once it finds something; elements may be replaced meanwhile."""
        from selenium.common.exceptions import StaleElementReferenceException

        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                if found := look():
                    return found
            except StaleElementReferenceException:
                pass
            assert time.monotonic() < end, f"{what} did not come: {self.driver.find_element('tag name', 'body').text}"
            time.sleep(0.03)

    def complaints(self) -> list[str]:
        """Return new messages of the browser's console: errors, refusals, failed requests."""
        return [row["message"] for row in self.driver.get_log("browser") if row["level"] in ("SEVERE", "WARNING")]

    def unfit(self) -> list[str]:
        """Return serious findings of axe-core for the current page."""
        self.script(gzip.decompress(AXE.read_bytes()).decode())
        found = self.driver.execute_async_script(
            "const [done] = arguments;"
            # Colours in a transition between two schemes belong to neither.
            "const changes = document.getAnimations().filter((each) => each instanceof CSSTransition);"
            "Promise.allSettled(changes.map((each) => each.finished))"
            ".then(() => axe.run(document, {resultTypes: ['violations']})).then((r) => done(r.violations))"
        )
        return [
            f"{each['id']}: {node['target']} {node['failureSummary']}"
            for each in found
            if each["impact"] in _SERIOUS
            for node in each["nodes"]
        ]

    def size(self, width: int, height: int) -> None:
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
        )

    def scheme(self, name: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": name}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def picture(self, path: Path) -> None:
        path.write_bytes(self.driver.get_screenshot_as_png())


@contextmanager
def browsing(url: str, scale: float = 1, microphone: Path | None = None) -> Iterator[Browser]:
    """A browser for the console at a URL; a WAV file is what its microphone hears, over and over."""
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "disable-gpu", "hide-scrollbars"):
        options.add_argument(f"--{flag}")
    if microphone is not None:
        options.add_argument("--use-fake-ui-for-media-stream")
        options.add_argument("--use-fake-device-for-media-stream")
        options.add_argument(f"--use-file-for-fake-audio-capture={microphone}")
    options.add_argument(f"--force-device-scale-factor={scale}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver"), unused_port()))
    try:
        driver.set_script_timeout(PATIENCE_S)
        yield Browser(driver, url)
    finally:
        driver.quit()
