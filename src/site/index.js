"use strict";
(() => {
  const of = (id) => document.getElementById(id);
  const { jobs } = JSON.parse(of("data").textContent);
  const number = new Intl.NumberFormat("en-GB", { maximumSignificantDigits: 5 });
  const PAGE = 200;

  const element = (name, text, kind) => {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (kind) made.className = kind;
    return made;
  };
  const svg = (name, attributes) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  };
  const moment = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 16).replace("T", " ");

  for (const job of jobs) {
    job.text = [job.job, job.config, job.study, job.title, job.backend, job.state, ...job.variants, job.answer ?? ""].join(" ").toLowerCase();
  }
  for (const key of ["state", "config"]) {
    for (const value of [...new Set(jobs.map((job) => job[key]))].sort()) of(key).append(new Option(value, value));
  }

  // What is chosen is in the address, so that a view can be sent and survives a reload.
  const address = new URLSearchParams(location.hash.slice(1));
  const ticked = new Set((address.get("compare") ?? "").split(",").filter(Boolean).map(Number));
  of("words").value = address.get("words") ?? "";
  of("state").value = address.get("state") ?? "";
  of("config").value = address.get("config") ?? "";
  let sorted = { key: "submitted", down: true };
  let limit = PAGE;
  const keep = () => {
    const kept = new URLSearchParams();
    for (const key of ["words", "state", "config"]) if (of(key).value) kept.set(key, of(key).value);
    if (ticked.size) kept.set("compare", [...ticked].join(","));
    history.replaceState(null, "", kept.size ? `#${kept}` : location.pathname + location.search);
  };

  const row = (job) => {
    const line = element("tr");
    const box = element("input");
    box.type = "checkbox";
    box.checked = ticked.has(job.job);
    box.setAttribute("aria-label", `Compare job ${job.job}`);
    box.addEventListener("change", () => {
      if (box.checked) ticked.add(job.job);
      else ticked.delete(job.job);
      compare();
      keep();
    });
    const tick = element("td");
    tick.append(box);
    const name = element("td", undefined, "right");
    if (job.page) {
      const link = element("a", job.job);
      link.href = job.page;
      name.append(link);
    } else name.textContent = job.job;
    const config = element("td", job.config);
    if (job.title) config.append(element("span", job.title, "title"));
    const state = element("td", undefined, "state");
    if (job.state === "running" || job.state === "waiting") {
      const progress = element("progress");
      progress.max = job.all;
      progress.value = job.completed;
      state.append(`${job.state} `, progress, ` ${job.completed} of ${job.all}`);
    } else state.textContent = job.state === "completed" ? `completed (${job.all})` : `${job.state}: ${job.trials}`;
    line.append(tick, name, config, state, element("td", moment(job.submitted), "submitted"), element("td", job.backend, "backend"), element("td", job.answer ?? ""));
    return line;
  };

  const chosen = () => {
    const words = of("words").value.toLowerCase().split(/\s+/).filter(Boolean);
    return jobs.filter((job) => words.every((word) => job.text.includes(word)) && (!of("state").value || job.state === of("state").value) && (!of("config").value || job.config === of("config").value));
  };
  const show = () => {
    const found = chosen();
    const { key, down } = sorted;
    const sign = down ? -1 : 1;
    const value = (job) => job[key] ?? "";
    found.sort((a, b) => sign * (typeof value(a) === "number" ? value(a) - value(b) : String(value(a)).localeCompare(String(value(b)))) || b.job - a.job);
    const body = document.querySelector("#jobs tbody");
    body.replaceChildren(...found.slice(0, limit).map(row));
    of("more").hidden = found.length <= limit;
    of("count").textContent = `${found.length} of ${jobs.length} jobs`;
    for (const head of document.querySelectorAll("#jobs th[data-key]")) {
      head.setAttribute("aria-sort", head.dataset.key === key ? (down ? "descending" : "ascending") : "none");
    }
  };

  const compare = () => {
    const listed = jobs.filter((job) => ticked.has(job.job)).sort((a, b) => a.job - b.job);
    of("compared").hidden = listed.length === 0;
    of("command").textContent = `expctl compare ${listed.map((job) => job.job).join(" ")}`;
    const rates = listed.flatMap((job) => (job.rates ?? []).map((rate) => ({ job, ...rate })));
    const most = Math.max(...rates.map((rate) => Math.max(rate.high ?? 0, rate.samples_per_s)));
    const lines = rates.map(({ job, label, samples_per_s, it_per_s, low, high, n }) => {
      const line = element("tr");
      const picture = svg("svg", { class: "bar", viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" });
      picture.append(svg("rect", { width: 100 * samples_per_s / most, height: 10 }));
      if (low !== null && high !== null) picture.append(svg("line", { x1: 100 * low / most, x2: 100 * high / most, y1: 5, y2: 5 }));
      const bar = element("td");
      bar.append(picture);
      const interval = low !== null && high !== null ? `${number.format(low)}–${number.format(high)}` : "–";
      line.append(element("td", `${job.job} ${job.config}`), element("td", label), element("td", number.format(samples_per_s), "right"), bar, element("td", interval, "right"), element("td", number.format(it_per_s), "right"), element("td", n, "right"));
      return line;
    });
    for (const job of listed.filter((job) => !job.rates?.length)) {
      const line = element("tr");
      const cell = element("td", job.page ? "no trial completed" : "no page of it here: make more with --pages");
      cell.colSpan = 6;
      line.append(element("td", `${job.job} ${job.config}`), cell);
      lines.push(line);
    }
    document.querySelector("#compared tbody").replaceChildren(...lines);
  };

  for (const id of ["words", "state", "config"]) {
    of(id).addEventListener("input", () => {
      limit = PAGE;
      show();
      keep();
    });
  }
  for (const head of document.querySelectorAll("#jobs th[data-key]")) {
    head.querySelector("button").addEventListener("click", () => {
      const { key } = head.dataset;
      sorted = { key, down: sorted.key === key ? !sorted.down : key === "job" || key === "submitted" };
      show();
    });
  }
  of("more").addEventListener("click", () => {
    limit += PAGE;
    show();
  });
  of("none").addEventListener("click", () => {
    ticked.clear();
    show();
    compare();
    keep();
  });
  of("choice").addEventListener("submit", (event) => event.preventDefault());
  of("choice").hidden = false;
  show();
  compare();
})();
