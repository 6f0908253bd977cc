"use strict";
(() => {
  const html = document.documentElement;
  html.classList.add("js");

  // One kernel at a time.
  const choice = document.getElementById("kernel");
  const articles = [...document.querySelectorAll("article.kernel")];
  const show = (id) => articles.forEach((article) => { article.hidden = article.id !== id; });
  if (choice) {
    const wanted = () => location.hash.slice(1).split("-")[0];
    const known = (id) => articles.some((article) => article.id === id);
    choice.value = known(wanted()) ? wanted() : articles[0].id;
    show(choice.value);
    choice.addEventListener("change", () => show(choice.value));
  }

  // Lines that belong together.
  articles.forEach((article) => {
    const panes = article.querySelector(".panes");
    const lines = [...panes.querySelectorAll(".l[data-k], .l[data-p]")];
    const group = (name) => {
      const groups = new Map();
      for (const line of lines) {
        const key = line.dataset[name];
        if (key === undefined) continue;
        if (!groups.has(key)) groups.set(key, []);
        groups.get(key).push(line);
      }
      return groups;
    };
    const byLine = group("k");
    const byPtx = group("p");
    let marked = [];
    let kept = null;

    const mark = (key, ptx) => {
      marked.forEach((line) => line.classList.remove("on", "hit"));
      marked = [];
      const add = (some, name) => (some || []).forEach((line) => { line.classList.add(name); marked.push(line); });
      add(byLine.get(key), "on");
      add(byPtx.get(ptx), "hit");
    };
    const keep = (key, ptx, from) => {
      kept = { key, ptx };
      mark(key, ptx);
      panes.querySelectorAll(".lines").forEach((pane) => {
        if (pane === from) return;
        const line = pane.querySelector(".l.hit") || pane.querySelector(".l.on");
        if (line) pane.scrollTop = line.offsetTop - pane.clientHeight / 3;
      });
    };
    const release = () => { kept = null; mark(); };

    panes.addEventListener("mouseover", (event) => {
      const line = event.target.closest(".l");
      if (line && line.dataset.k) mark(line.dataset.k, line.dataset.p);
    });
    panes.addEventListener("mouseleave", () => (kept ? mark(kept.key, kept.ptx) : mark()));
    panes.addEventListener("click", (event) => {
      if (!getSelection().isCollapsed) return;
      const line = event.target.closest(".l");
      if (line && line.dataset.k) keep(line.dataset.k, line.dataset.p, line.closest(".lines"));
      else if (line) release();
    });
    // Up and down go from line to line with code.
    panes.addEventListener("keydown", (event) => {
      if (event.key === "Escape") return release();
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      const pane = event.target.closest(".lines");
      const own = step && pane ? [...pane.querySelectorAll(".l[data-k]")] : [];
      if (!own.length) return;
      event.preventDefault();
      let at = own.findIndex((line) => kept && line.dataset.k === kept.key && (!kept.ptx || line.dataset.p === kept.ptx));
      at = Math.min(Math.max(at + step, 0), own.length - 1);
      own[at].scrollIntoView({ block: "nearest" });
      keep(own[at].dataset.k, own[at].dataset.p, pane);
    });
    panes.querySelectorAll("[data-tab]").forEach((tab) => tab.addEventListener("click", () => {
      panes.dataset.show = tab.dataset.tab;
      panes.querySelectorAll("[data-tab]").forEach((other) => other.setAttribute("aria-pressed", other === tab));
      if (kept) keep(kept.key, kept.ptx, null);
    }));
    article.querySelectorAll("a[data-go]").forEach((link) => link.addEventListener("click", (event) => {
      event.preventDefault();
      panes.scrollIntoView({ block: "center" });
      keep(link.dataset.go, undefined, null);
    }));
  });

  // Timelines: a window of the time.
  document.querySelectorAll(".timeline").forEach((timeline) => {
    const steps = Number(timeline.dataset.steps);
    const end = Number(timeline.dataset.end);
    const tracks = [...timeline.querySelectorAll(".track")];
    const ticks = [...timeline.querySelectorAll(".ticks span")];
    const detail = timeline.parentElement.querySelector(".detail");
    let [start, width] = [0, steps];
    const draw = () => {
      width = Math.min(Math.max(width, steps / 64), steps);
      start = Math.min(Math.max(start, 0), steps - width);
      tracks.forEach((track) => track.setAttribute("viewBox", `${start} 0 ${width} 10`));
      ticks.forEach((tick, i) => { tick.textContent = Math.round(((start + (width * i) / 4) / steps) * end); });
    };
    const zoom = (factor, at) => {
      const fixed = start + width * at;
      width *= factor;
      draw();
      start = fixed - width * at;
      draw();
    };
    const actions = {
      in: () => zoom(0.5, 0.5), out: () => zoom(2, 0.5),
      left: () => { start -= width / 2; draw(); }, right: () => { start += width / 2; draw(); },
      all: () => { [start, width] = [0, steps]; draw(); },
    };
    timeline.querySelectorAll("[data-zoom]").forEach((button) =>
      button.addEventListener("click", actions[button.dataset.zoom]));
    const place = (event, track) => {
      const box = track.getBoundingClientRect();
      return (event.clientX - box.left) / box.width;
    };
    timeline.addEventListener("wheel", (event) => {
      const track = event.target.closest(".track");
      if (!track || !event.ctrlKey) return;
      event.preventDefault();
      zoom(event.deltaY > 0 ? 1.25 : 0.8, place(event, track));
    }, { passive: false });
    timeline.addEventListener("pointermove", (event) => {
      const track = event.target.closest(".track");
      if (track && event.buttons === 1) {
        start -= (event.movementX / track.getBoundingClientRect().width) * width;
        draw();
      }
    });
    const tell = (event) => {
      const title = event.target.closest("rect") && event.target.closest("rect").querySelector("title");
      if (title) detail.textContent = title.textContent;
    };
    timeline.addEventListener("pointerover", tell);
    timeline.addEventListener("click", tell);
  });
})();
