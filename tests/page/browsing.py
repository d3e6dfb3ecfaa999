"""A browser for tests: the system's own Chromium, driven by Selenium; tests skip, visibly, where there is none."""

import contextlib
import os
import shutil
from pathlib import Path

import PIL.Image
import pytest

SECONDS = 240
"""For which a condition is waited for at most; nothing is concluded from how long it took."""
WIDE, PHONE = (1280, 900), (390, 844)


@contextlib.contextmanager
def browser():
    """A headless Chromium that ends with the context."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs Selenium to drive a browser")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("needs Chromium and chromedriver on this machine")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    found = webdriver.Chrome(options, webdriver.ChromeService(driver))
    found.command_executor.client_config.timeout = 2 * SECONDS  # a machine that is busy is no reason to fail
    found.set_script_timeout(SECONDS)
    try:
        yield Browser(found)
    finally:
        found.quit()


class Browser:
    """What the tests ask of it."""

    def __init__(self, driver):
        self.driver = driver
        driver.set_page_load_timeout(SECONDS)

    def open(self, address):
        self.driver.get(address)

    def wait(self, condition, words):
        """Wait until a condition on the page's text holds; the text."""
        from selenium.common.exceptions import TimeoutException, WebDriverException
        from selenium.webdriver.support.ui import WebDriverWait

        wait = WebDriverWait(self.driver, SECONDS, 0.3, ignored_exceptions=[WebDriverException])
        try:
            wait.until(lambda _: condition(self.text))
        except TimeoutException:
            raise AssertionError(f"{words} was not seen; the page says:\n{self.text}") from None
        return self.text

    @property
    def text(self):
        return self.driver.execute_script("return document.body.innerText")

    def run(self, code, *arguments):
        return self.driver.execute_script(code, *arguments)

    def all_text(self, selector):
        """The text of every element of a kind."""
        return self.run(
            "return [...document.querySelectorAll(arguments[0])].map(one => one.innerText.trim())", selector
        )

    def looks(self, size=WIDE, dark=False):
        """Make the window wide or narrow, and let the system prefer light or dark colours."""
        shape = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size == PHONE}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", shape)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})

    def wait_for_colours(self, dark):
        self.wait(lambda _: self.run("return document.body.classList.contains('body--dark')") == dark, "the colours")

    def picture(self, name, size=WIDE, dark=False, when=None):
        """Keep a screenshot of the whole page, if `CONSILIENCE_SCREENSHOTS` names a directory for them.

        One of a moment that passes, of which a test cannot be sure: it is waited for if it is wanted.
        """
        place = os.environ.get("CONSILIENCE_SCREENSHOTS")
        if not place:
            return
        if when is not None:
            self.wait(when, f"the moment of {name}")
        Path(place).mkdir(parents=True, exist_ok=True)
        self.looks(size, dark)
        self.wait_for_colours(dark)
        tall = self.run("return document.querySelector('.page').scrollHeight")
        self.looks((size[0], max(size[1], tall)), dark)
        self.run("return new Promise(done => setTimeout(done, 2500))")  # the server draws the charts in these colours
        path = Path(place) / f"{name}.png"
        self.driver.save_screenshot(str(path))
        with PIL.Image.open(path) as image:  # few colours make small files
            image.convert("RGB").quantize(224, dither=PIL.Image.Dither.NONE).save(path, optimize=True)
        self.looks()

    def complaints(self):
        """What went wrong in the browser: refused by the policy, missing, or an error of a program."""
        return [one["message"] for one in self.driver.get_log("browser") if one["level"] == "SEVERE"]
