"use strict";
(() => {
  const NS = "http://www.w3.org/2000/svg";
  const shown = new Intl.NumberFormat("en-GB", { maximumSignificantDigits: 5 });
  const whole = new Intl.NumberFormat("en-GB", { maximumFractionDigits: 0 });
  // A batch or a step has its full number.
  const words = (value) => Number.isInteger(value) && Math.abs(value) < 1e9 ? whole.format(value) : value !== 0 && (Math.abs(value) < 1e-4 || Math.abs(value) >= 1e9) ? value.toExponential(3) : shown.format(value);

  // A link leads into a folded section; paper has all of them.
  const open = (details) => { details.open = true; };
  const reveal = () => {
    const target = document.getElementById(location.hash.slice(1));
    if (!target) return;
    for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") open(at);
    target.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  reveal();
  addEventListener("beforeprint", () => document.querySelectorAll("main details").forEach(open));

  // Tables.
  const UNITS = { B: 1, kB: 1e3, MB: 1e6, GB: 1e9, TB: 1e12, PB: 1e15, KiB: 1024, MiB: 1048576, GiB: 1073741824, ns: 1e-9, "µs": 1e-6, us: 1e-6, ms: 1e-3, s: 1, min: 60, h: 3600 };
  // The number that a cell begins with, in its unit; null for words.
  const number = (text) => {
    const found = /^[≈~<>≤≥+]?\s*([−-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?)\s*([A-Za-zµ]+)?/.exec(text.trim());
    if (!found) return null;
    const value = Number(found[1].replace(/,/g, "").replace("−", "-"));
    return value * (UNITS[found[2]] ?? 1);
  };
  const empty = (text) => ["", "–", "-", "—", "baseline"].includes(text.trim());
  const collator = new Intl.Collator("en", { numeric: true });
  for (const table of document.querySelectorAll("main table")) {
    const body = table.tBodies[0];
    if (!body || body.rows.length < 2) {
      for (const head of table.querySelectorAll("th")) head.classList.add("plain");
    }
    const rows = body ? [...body.rows] : [];
    [...table.querySelectorAll("thead th")].forEach((head, column) => {
      const sort = document.createElement("button");
      sort.type = "button";
      sort.append(...head.childNodes);
      head.append(sort);
      sort.addEventListener("click", () => {
        const before = head.getAttribute("aria-sort");
        const now = before === null ? "ascending" : before === "ascending" ? "descending" : null;
        for (const other of table.querySelectorAll("th")) other.removeAttribute("aria-sort");
        if (now) head.setAttribute("aria-sort", now);
        const text = (row) => row.cells[column]?.textContent ?? "";
        const full = rows.filter((row) => !empty(text(row)));
        const numbers = full.filter((row) => number(text(row)) !== null).length * 2 > full.length;
        const sign = now === "descending" ? -1 : 1;
        const missing = (row) => empty(text(row)) || (numbers && number(text(row)) === null);
        const compare = (a, b) => {
          // What has no value stands last in either order.
          if (missing(a) || missing(b)) return missing(a) - missing(b);
          return sign * (numbers ? number(text(a)) - number(text(b)) : collator.compare(text(a), text(b)));
        };
        body.append(...(now ? rows.toSorted(compare) : rows));
      });
    });
  }

  // Pictures.
  const log = (scale) => scale === "log";
  const spread = (value, scale) => log(scale) ? Math.log10(value) : value;
  const back = (value, scale) => log(scale) ? 10 ** value : value;

  // Round steps between two values; powers of ten where they are far apart.
  const ticks = (low, high, scale, wanted) => {
    const all = [];
    if (log(scale) && Math.log10(high / low) >= 0.7) {
      const decades = Math.log10(high / low);
      const every = Math.max(1, Math.ceil(decades / wanted));
      const digits = decades * 3 <= wanted ? [1, 2, 5] : decades * 2 <= wanted ? [1, 3] : [1];
      for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
        for (let digit = 1; digit < 10; digit++) {
          const value = digit * 10 ** power;
          if (value < low || value > high) continue;
          const named = digits.includes(digit) && power % every === 0;
          if (named || (decades <= 8 && every === 1)) all.push([value, named ? words(value) : ""]);
        }
      }
      return all;
    }
    const rough = (high - low) / wanted;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].find((lead) => lead * power >= rough * 0.999) * power;
    const decimals = Math.max(0, -Math.floor(Math.log10(step * 1.0001)));
    const style = decimals <= 6 ? { minimumFractionDigits: decimals, maximumFractionDigits: decimals } : null;
    for (let i = Math.ceil(low / step - 1e-9); i <= high / step + 1e-9; i++) {
      const value = i * step;
      all.push([value, i === 0 ? "0" : style ? value.toLocaleString("en-GB", style).replace("-", "−") : value.toExponential(2)]);
    }
    return all;
  };

  const element = (name, attributes, text) => {
    const node = document.createElementNS(NS, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    return node;
  };

  // One pair of axes: where the values stand now, and what is behind the marks.
  class Panel {
    constructor(group, data) {
      this.group = group;
      this.data = data;
      const [left, top, width, height] = group.dataset.frame.split(" ").map(Number);
      Object.assign(this, { left, top, width, height });
      this.axes = ["x", "y"].map((axis) => {
        const scale = group.dataset[`${axis}Scale`];
        return { scale, ends: group.dataset[axis].split(" ").map((value) => spread(Number(value), scale)), fixed: data[axis].names.length > 0 };
      });
      this.marks = group.querySelector(".marks");
      this.below = group.querySelector(".below");
      this.beside = group.querySelector(".beside");
      this.first = [this.below.innerHTML, this.beside.innerHTML];
      this.reset();
    }
    reset() {
      this.scale = [1, 1];
      this.shift = [0, 0];
      this.draw();
    }
    // Place of a value before zooming, in points of the picture.
    base(axis, value) {
      const { scale, ends } = this.axes[axis];
      const share = (spread(value, scale) - ends[0]) / (ends[1] - ends[0]);
      return axis === 0 ? this.left + share * this.width : this.top + (1 - share) * this.height;
    }
    place(axis, value) {
      return this.base(axis, value) * this.scale[axis] + this.shift[axis];
    }
    value(axis, place) {
      const { scale, ends } = this.axes[axis];
      const at = (place - this.shift[axis]) / this.scale[axis];
      const share = axis === 0 ? (at - this.left) / this.width : 1 - (at - this.top) / this.height;
      return back(ends[0] + share * (ends[1] - ends[0]), scale);
    }
    contains(x, y) {
      return x >= this.left && x <= this.left + this.width && y >= this.top && y <= this.top + this.height;
    }
    zoom(axis, factor, centre) {
      if (this.axes[axis].fixed) return;
      const scale = Math.min(1e5, Math.max(1, this.scale[axis] * factor));
      this.shift[axis] = centre - (centre - this.shift[axis]) * (scale / this.scale[axis]);
      this.scale[axis] = scale;
      this.hold(axis);
    }
    pan(axis, by) {
      if (this.axes[axis].fixed) return;
      this.shift[axis] += by;
      this.hold(axis);
    }
    // The picture never leaves its frame.
    hold(axis) {
      const [from, length] = axis === 0 ? [this.left, this.width] : [this.top, this.height];
      const most = from * (1 - this.scale[axis]);
      const least = most - length * (this.scale[axis] - 1);
      this.shift[axis] = Math.min(most, Math.max(least, this.shift[axis]));
    }
    // Show what lies between two places.
    show(axis, a, b) {
      const [from, length] = axis === 0 ? [this.left, this.width] : [this.top, this.height];
      if (this.axes[axis].fixed || Math.abs(a - b) < 4) return;
      const low = (Math.min(a, b) - this.shift[axis]) / this.scale[axis];
      const high = (Math.max(a, b) - this.shift[axis]) / this.scale[axis];
      this.scale[axis] = Math.min(1e5, length / (high - low));
      this.shift[axis] = from - low * this.scale[axis];
      this.hold(axis);
    }
    draw() {
      const [sx, sy] = this.scale;
      const [tx, ty] = this.shift;
      const whole = sx === 1 && sy === 1;
      this.marks.setAttribute("transform", whole ? "" : `matrix(${sx} 0 0 ${sy} ${tx} ${ty})`);
      this.group.dataset.zoomed = whole ? "no" : "yes";
      if (whole) {
        [this.below.innerHTML, this.beside.innerHTML] = this.first;
        return;
      }
      const { left, top, width, height } = this;
      if (!this.axes[0].fixed) {
        const all = ticks(this.value(0, left), this.value(0, left + width), this.axes[0].scale, Math.max(2, Math.min(10, width / 90)));
        this.below.replaceChildren(...all.flatMap(([value, label]) => {
          const x = this.place(0, value);
          const line = element("path", { class: label ? "grid" : "grid faint", d: `M${x} ${top}V${top + height}` });
          return label ? [line, element("text", { class: "quiet", "text-anchor": "middle", x, y: top + height + 16 }, label)] : [line];
        }));
      }
      if (!this.axes[1].fixed) {
        const all = ticks(this.value(1, top + height), this.value(1, top), this.axes[1].scale, Math.max(2, Math.min(10, height / 42)));
        this.beside.replaceChildren(...all.flatMap(([value, label]) => {
          const y = this.place(1, value);
          const line = element("path", { class: label ? "grid" : "grid faint", d: `M${left} ${y}H${left + width}` });
          return label ? [line, element("text", { class: "quiet", "text-anchor": "end", x: left - 6, y: y + 4 }, label)] : [line];
        }));
      }
    }
    name(axis, value) {
      const { names, label } = this.data["xy"[axis]];
      const named = names[Math.round(value)];
      if (named !== undefined) return label ? `${label}: ${named}` : named;
      return `${label || "xy"[axis]}: ${words(value)}`;
    }
    // What is drawn at a place: the words for it and where it stands; null where nothing is.
    find(x, y, hidden) {
      let best = null;
      const better = (distance, reach, make) => {
        if (distance <= reach && (!best || distance <= best.distance)) best = { distance, ...make() };
      };
      for (const layer of this.data.layers) {
        if (hidden.has(layer.name)) continue;
        for (const [px, py] of layer.points ?? []) {
          const at = [this.place(0, px), this.place(1, py)];
          if (!this.contains(...at)) continue;
          better(Math.hypot(at[0] - x, at[1] - y), 18, () => ({ at, text: [layer.name, layer.of, this.name(0, px), this.name(1, py)] }));
        }
        for (const bar of layer.bars ?? []) {
          const [a, b] = [this.place(0, bar.x - bar.width / 2), this.place(0, bar.x + bar.width / 2)];
          const ends = [bar.from, bar.to].map((value) => log(this.axes[1].scale) && value <= 0 ? this.top + this.height : this.place(1, value));
          const within = (value, places) => value >= Math.min(...places) && value <= Math.max(...places);
          // An interval may stand for itself, where a dot has the value: it is found by its whisker, and before the dot.
          const alone = bar.width === 0 || bar.from === bar.to;
          const onBar = !alone && within(x, [a, b]) && within(y, ends);
          const whisker = bar.interval?.map((value) => this.place(1, value));
          const onWhisker = whisker && Math.abs(x - (a + b) / 2) <= 6 && within(y, whisker) && this.contains(x, y);
          if (!onBar && !onWhisker) continue;
          const label = this.data.y.label || "y";
          const text = [layer.name, layer.of, this.name(0, bar.x), `${label}: ${words(alone ? bar.to : bar.to - bar.from)}`];
          if (bar.interval) text.push(`95 % interval: ${bar.interval.map(words).join(" – ")}`);
          better(alone ? -1 : 17, 18, () => ({ at: [(a + b) / 2, Math.max(this.top, Math.min(...ends))], text }));
        }
        for (const box of layer.boxes ?? []) {
          const [a, b] = [this.place(0, box.x - box.width / 2), this.place(0, box.x + box.width / 2)];
          const height = (value) => log(this.axes[1].scale) && value <= 0 ? this.top + this.height : this.place(1, value);
          const [low, high] = box.whiskers.map(height);
          // A box of equal times is a line, which is hit from a little above and below, too.
          if (x < a || x > b || y < Math.min(low, high) - 4 || y > Math.max(low, high) + 4 || !this.contains(x, y)) continue;
          const ends = (values) => values.map(words).join(" – ");
          const text = [layer.name, layer.of, this.name(0, box.x), `${this.data.y.label || "y"}, median: ${words(box.median)}`, `25 % to 75 %: ${ends(box.quartiles)}`, `${layer.whiskers}: ${ends(box.whiskers)}`];
          better(17, 18, () => ({ at: [(a + b) / 2, Math.max(this.top, height(box.median))], text }));
        }
        for (const cell of layer.cells ?? []) {
          const [a, b] = cell.x.map((value) => this.place(0, value));
          const [c, d] = cell.y.map((value) => this.place(1, value)).sort((p, q) => p - q);
          if (x < a || x >= b || y < c || y >= d || cell.value === null) continue;
          const text = [`${layer.name}: ${words(cell.value)}`, `${this.data.x.label}: ${words(cell.x[0])} to ${words(cell.x[1])}`, this.name(1, (cell.y[0] + cell.y[1]) / 2)];
          better(17, 18, () => ({ at: [(a + b) / 2, (c + d) / 2], text }));
        }
        if (layer.kind === "rule") {
          const at = this.place(1, layer.y);
          better(Math.abs(at - y) + 10, 16, () => ({ at: [x, at], text: [layer.name, this.name(1, layer.y)] }));
        }
      }
      return best;
    }
  }

  for (const figure of document.querySelectorAll("figure.plot")) {
    const svg = figure.querySelector("svg");
    const tip = figure.querySelector(".tip");
    const data = JSON.parse(figure.querySelector("script").textContent);
    const panels = [...svg.querySelectorAll(".panel")].map((group, i) => new Panel(group, data[i]));
    const hidden = new Set();
    const found = element("circle", { class: "found", r: 6, visibility: "hidden" });
    const select = element("rect", { class: "select", visibility: "hidden" });
    svg.append(found, select);
    let last = panels[0];
    let drag = null;

    const point = (event) => {
      const { x, y } = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
      return [x, y];
    };
    const under = ([x, y]) => panels.find((panel) => panel.contains(x, y));
    const forget = () => {
      tip.hidden = true;
      found.setAttribute("visibility", "hidden");
    };
    const hover = (event) => {
      const at = point(event);
      const panel = under(at);
      const hit = panel?.find(...at, hidden);
      if (!hit) return forget();
      tip.textContent = hit.text.filter(Boolean).join("\n");
      tip.hidden = false;
      found.setAttribute("visibility", "visible");
      found.setAttribute("cx", hit.at[0]);
      found.setAttribute("cy", hit.at[1]);
      const box = figure.getBoundingClientRect();
      const x = event.clientX - box.left + 14;
      const y = event.clientY - box.top + 14;
      tip.style.left = `${Math.max(0, Math.min(x, box.width - tip.offsetWidth - 4))}px`;
      tip.style.top = `${y + tip.offsetHeight > box.height ? Math.max(0, y - tip.offsetHeight - 24) : y}px`;
    };
    const zoom = (panel, factor, [x, y]) => {
      panel.zoom(0, factor, x);
      panel.zoom(1, factor, y);
      panel.draw();
      forget();
    };
    const centre = (panel) => [panel.left + panel.width / 2, panel.top + panel.height / 2];
    const reset = () => {
      panels.forEach((panel) => panel.reset());
      forget();
    };

    // Before a click the wheel moves the page, not the picture.
    svg.addEventListener("wheel", (event) => {
      const at = point(event);
      const panel = under(at);
      if (!panel || !(event.ctrlKey || event.metaKey || figure.contains(document.activeElement))) return;
      event.preventDefault();
      last = panel;
      zoom(panel, Math.exp(-event.deltaY * (event.deltaMode === 1 ? 0.05 : 0.0016)), at);
    }, { passive: false });
    svg.addEventListener("pointerdown", (event) => {
      const at = point(event);
      const panel = under(at);
      if (!panel || event.button !== 0 || event.pointerType === "touch") return;
      drag = { panel, at, last: at, pans: event.shiftKey };
      last = panel;
    });
    svg.addEventListener("pointermove", (event) => {
      if (!drag) return hover(event);
      forget();
      const { panel, at } = drag;
      const now = point(event);
      if (Math.hypot(now[0] - at[0], now[1] - at[1]) > 4) svg.setPointerCapture(event.pointerId);
      if (drag.pans) {
        panel.pan(0, now[0] - drag.last[0]);
        panel.pan(1, now[1] - drag.last[1]);
        panel.draw();
      } else {
        const [x, y] = [panel.axes[0].fixed ? panel.left : Math.min(at[0], now[0]), panel.axes[1].fixed ? panel.top : Math.min(at[1], now[1])];
        const width = panel.axes[0].fixed ? panel.width : Math.abs(at[0] - now[0]);
        const height = panel.axes[1].fixed ? panel.height : Math.abs(at[1] - now[1]);
        for (const [key, value] of Object.entries({ x, y, width, height, visibility: "visible" })) select.setAttribute(key, value);
      }
      drag.last = now;
    });
    const drop = (event) => {
      if (!drag) return;
      const { panel, at, pans } = drag;
      const now = point(event);
      drag = null;
      select.setAttribute("visibility", "hidden");
      if (pans || event.type === "pointercancel" || Math.hypot(now[0] - at[0], now[1] - at[1]) < 6) return;
      panel.show(0, at[0], now[0]);
      panel.show(1, at[1], now[1]);
      panel.draw();
    };
    svg.addEventListener("pointerup", drop);
    svg.addEventListener("pointercancel", drop);
    svg.addEventListener("pointerleave", () => drag || forget());
    svg.addEventListener("dblclick", reset);
    figure.querySelector(".tools").addEventListener("click", (event) => {
      const what = event.target.dataset.do;
      if (what === "reset") reset();
      else if (what) panels.forEach((panel) => zoom(panel, what === "in" ? 1.5 : 1 / 1.5, centre(panel)));
    });
    figure.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const moves = { ArrowLeft: [0, 60], ArrowRight: [0, -60], ArrowUp: [1, 40], ArrowDown: [1, -40] };
      if (event.key === "+" || event.key === "=") zoom(last, 1.5, centre(last));
      else if (event.key === "-") zoom(last, 1 / 1.5, centre(last));
      else if (event.key === "0" || event.key === "Escape") reset();
      else if (moves[event.key] && last.group.dataset.zoomed === "yes") {
        last.pan(...moves[event.key]);
        last.draw();
      } else return;
      event.preventDefault();
    });
    for (const entry of svg.querySelectorAll(".entry")) {
      const name = entry.dataset.name;
      entry.setAttribute("tabindex", "0");
      entry.setAttribute("role", "button");
      entry.setAttribute("aria-pressed", "true");
      const toggle = () => {
        const off = !hidden.has(name);
        off ? hidden.add(name) : hidden.delete(name);
        entry.classList.toggle("off", off);
        entry.setAttribute("aria-pressed", String(!off));
        for (const mark of svg.querySelectorAll(".marks [data-name]")) {
          if (mark.dataset.name === name) mark.setAttribute("visibility", off ? "hidden" : "visible");
        }
      };
      entry.addEventListener("click", toggle);
      entry.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        toggle();
      });
    }
    // The tips of the drawing itself would stand over ours.
    for (const title of svg.querySelectorAll("title")) title.remove();
  }
})();
