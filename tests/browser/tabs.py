"""One tab of a browser for many tests, each of which finds its page as if nobody had been there."""

from playwright.sync_api import Page

BLANK = "about:blank"
WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 360, "height": 740}


class Tab:
    def __init__(self, page: Page) -> None:
        self.page = page
        #: The address that is shown as it was loaded, or none.
        self.shown = ""

    def show(self, address: str) -> Page:
        """Return the page of the address, loaded anew unless it is as it was loaded."""
        if self.shown != address:
            self.page.goto(address)
            self.shown = address
        return self.page

    def drop(self) -> None:
        """Forget the page, all that it keeps, and what was made of the window, the pointer and the media."""
        if self.page.url != BLANK:
            self.page.evaluate("localStorage.clear()")
            self.page.goto(BLANK)
        self.page.mouse.move(0, 0)
        self.page.set_viewport_size(WIDE)
        self.page.emulate_media(media="null", color_scheme="light", reduced_motion="null")
        self.shown = ""
