#!/usr/bin/env python3
"""Opens pages of `weft report` in a headless Chromium and checks that readers can use them.

    .ci/page.py [--shots FOLDER] PAGE.html...

Each page is opened at the widths of a phone and a laptop, in light and in dark. The console must show no error, the page
must load no other files, every section must exist, a line under the pointer must mark lines in the other panes, the page
must not be wider than its window, and text must have enough contrast with its background.
"""

import argparse
import pathlib
import shutil
import sys

from playwright.sync_api import sync_playwright

BROWSERS = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"]
WIDTHS = {"phone": (390, 844), "laptop": (1366, 768)}
SCHEMES = ["light", "dark"]
SECTIONS = ["code", "accesses", "resources", "layouts", "traffic", "timeline", "findings"]
# The time limit of a browser action in milliseconds.
TIMEOUT = 60_000

# Finds the texts whose contrast with their background is below that of WCAG 2.2, level AA, each once. Both colours are
# painted on a canvas, which understands every notation of a colour.
CONTRAST = """
() => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const painted = (colors) => {
    canvas.clearRect(0, 0, 1, 1);
    for (const color of colors) { canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1); }
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const luminance = (rgb) => {
    const [r, g, b] = rgb.map((c) => c / 255).map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (a, b) => {
    const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p);
    return (x + 0.05) / (y + 0.05);
  };
  // A cell's text follows its rectangle.
  const cell = (text) => {
    let before = text.previousElementSibling;
    while (before && before.tagName !== "rect") before = before.previousElementSibling;
    return before;
  };
  const grounds = (element) => {
    const all = [];
    for (let at = element; at; at = at.parentElement) {
      if (at.tagName === "text") {
        const fills = [at.ownerSVGElement.querySelector(".ground")];
        if (!at.classList.contains("index")) fills.unshift(cell(at));
        all.push(...fills.filter(Boolean).map((rect) => getComputedStyle(rect).fill).filter((fill) => fill !== "none"));
      } else all.push(getComputedStyle(at).backgroundColor);
    }
    return ["Canvas", ...all.reverse()];
  };
  const worst = new Map();
  for (const element of document.querySelectorAll("body *")) {
    const words = [...element.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    const skipped = ["SCRIPT", "STYLE", "TITLE", "title", "style", "METER", "OPTION"].includes(element.tagName);
    if (!words || skipped || !element.checkVisibility()) continue;
    const style = getComputedStyle(element);
    const ink = element instanceof SVGElement ? style.fill : style.color;
    const behind = grounds(element);
    const key = [ink, ...behind].join();
    if (worst.has(key)) continue;
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700);
    const found = ratio(painted([...behind, ink]), painted(behind));
    worst.set(key, found < (large ? 3 : 4.5) ? `${found.toFixed(2)}: ${element.tagName}.${element.getAttribute("class")} "${element.textContent.trim().slice(0, 40)}"` : null);
  }
  return { texts: worst.size, low: [...worst.values()].filter(Boolean) };
}
"""

# Finds elements that are wider than the window and not inside of an element that scrolls.
OVERFLOW = """
() => {
  const wide = document.documentElement.scrollWidth - innerWidth;
  if (wide <= 0) return null;
  const out = [...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > innerWidth + 1
    && !e.closest(".scroll, .lines, nav"));
  return `${wide} pixels: ` + out.slice(0, 5).map((e) => `${e.tagName}.${e.className}`).join(", ");
}
"""


class Checks:
    """Counts what was checked of a page, and keeps what is wrong."""

    def __init__(self, name):
        self.name, self.wrong, self.count = name, [], 0

    def that(self, good, message):
        self.count += 1
        if not good:
            self.wrong.append(f"{self.name}: {message}")


def sections(page, checks):
    articles = page.locator("article.kernel")
    checks.that(articles.count() > 0, "no kernel")
    for i in range(articles.count()):
        have = articles.nth(i).locator("section[data-section]").evaluate_all(
            "all => all.filter(s => s.textContent.trim().length > 20).map(s => s.dataset.section)"
        )
        checks.that(have == SECTIONS, f"kernel {i} has sections {have}")


def point(line):
    """Brings a line to the middle of its pane, and the pane to the middle of the window; then points at its number."""
    line.evaluate(
        """line => { const pane = line.closest(".lines"); pane.scrollIntoView({ block: "center" });
        pane.scrollTop = line.offsetTop - pane.clientHeight / 2; }"""
    )
    line.locator("b").hover()


def linking(page, checks, narrow):
    """A source line that has machine code marks lines of every pane, and a click keeps them and shows them."""
    source = page.locator("article.kernel:not([hidden]) .pane[data-pane=source]").first
    panes = source.locator("xpath=..")
    keys = panes.locator(".pane[data-pane=sass] .l[data-k]").evaluate_all("all => all.map(l => l.dataset.k)")
    checks.that(keys, "no line of SASS has a line of the source")
    own = source.locator(".l[data-k]").evaluate_all("all => all.map(l => l.dataset.k)")
    key = next((key for key in own if key in keys and keys.count(key) < len(keys) / 2), None)
    checks.that(key, "no line of the source has SASS")
    if not key:
        return
    line = source.locator(f'.l[data-k="{key}"]')
    point(line)
    marked = lambda pane: panes.locator(f".pane[data-pane={pane}] .l.on").count()
    for pane in ["source", "ir", "ptx", "sass"]:
        checks.that(marked(pane) > 0, f"pointing at line {key} marks nothing in {pane}")
    checks.that(marked("sass") == keys.count(key), f"line {key} marks {marked('sass')} lines of SASS")
    page.mouse.move(1, 1)
    checks.that(marked("ptx") == 0, "lines stay marked when the pointer leaves")
    line.locator("b").click()
    page.mouse.move(1, 1)
    for pane in ["ir", "ptx", "sass"]:
        if narrow:
            panes.locator(f"[data-tab={pane}]").click()
        visible = panes.locator(f".pane[data-pane={pane}] .lines").evaluate(
            """pane => { const box = pane.getBoundingClientRect(); return [...pane.querySelectorAll(".l.on, .l.hit")]
            .some(l => { const at = l.getBoundingClientRect(); return at.top >= box.top && at.bottom <= box.bottom; }); }"""
        )
        checks.that(visible, f"a click on line {key} does not show its lines in {pane}")
    # The keyboard selects the next line with code instead.
    source.locator(".lines").press("ArrowDown")
    now = source.locator(".l.on").evaluate_all("all => all.map(l => l.dataset.k)")
    checks.that(now == [own[own.index(key) + 1]], f"the key down goes from {key} to {now}")
    source.locator(".lines").press("Escape")
    checks.that(marked("source") == 0, "Escape does not let go")
    # In the other direction, an instruction marks its line.
    point(panes.locator(f'.pane[data-pane=sass] .l[data-k="{key}"]').first)
    checks.that(source.locator(".l.on").count() == 1, "an instruction does not mark its source line")


def timeline(page, checks):
    line = page.locator("article.kernel:not([hidden]) .timeline").first
    if not line.count():
        return
    checks.that(line.locator("rect").count() > 0, "the timeline is empty")
    line.locator("[data-zoom=in]").click()
    view = line.locator(".track").first.get_attribute("viewBox").split()
    checks.that(float(view[2]) == float(line.get_attribute("data-steps")) / 2, f"zooming in gives {view}")
    line.locator("[data-zoom=all]").click()


def open_page(browser, path, width, scheme, shots):
    name = f"{path.name}, {width}, {scheme}"
    checks = Checks(name)
    size = WIDTHS[width]
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, has_touch=False
    )
    context.set_default_timeout(TIMEOUT)
    page = context.new_page()
    said, fetched = [], []
    page.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: fetched.append(request.url))
    page.goto(path.resolve().as_uri())
    sections(page, checks)
    overflow = page.evaluate(OVERFLOW)
    checks.that(overflow is None, f"the page is wider than its window by {overflow}")
    contrast = page.evaluate(CONTRAST)
    checks.that(contrast["texts"] > 20, f"only {contrast['texts']} colours of text were found")
    checks.that(not contrast["low"], "too little contrast:\n  " + "\n  ".join(contrast["low"][:10]))
    if shots:
        page.screenshot(path=shots / f"{path.stem}-{width}-{scheme}.png", full_page=True)
    linking(page, checks, width == "phone")
    if shots:
        page.screenshot(path=shots / f"{path.stem}-{width}-{scheme}-linked.png")
    timeline(page, checks)
    checks.that(not said, f"the console says {said[:3]}")
    others = [url for url in fetched if not url.startswith("file:")]
    checks.that(len(fetched) == 1 and not others, f"the page fetches {fetched[1:4]}")
    context.close()
    return checks


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="+", type=pathlib.Path)
    parser.add_argument("--shots", type=pathlib.Path, help="a folder for pictures of the pages")
    asked = parser.parse_args()
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if not program:
        sys.exit(f"no browser: one of {', '.join(BROWSERS)} is needed (Debian: chromium-headless-shell)")
    if asked.shots:
        asked.shots.mkdir(parents=True, exist_ok=True)
    done = []
    with sync_playwright() as play:
        # In a container, the container itself is the only sandbox for root.
        browser = play.chromium.launch(executable_path=program, args=["--no-sandbox"], timeout=TIMEOUT)
        for path in asked.pages:
            for width in WIDTHS:
                done += [open_page(browser, path, width, scheme, asked.shots) for scheme in SCHEMES]
        browser.close()
    wrong = [message for checks in done for message in checks.wrong]
    print(f"{len(asked.pages)} pages, {sum(checks.count for checks in done)} checks, {len(wrong)} failed")
    sys.exit("\n".join(wrong) or 0)


main()
