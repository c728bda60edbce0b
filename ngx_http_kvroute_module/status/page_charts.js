/* --- decisions over time */

const reasons = () => {
  const list = past.get($("upstream").value) || [];
  const names = new Map();
  for (let i = 1; i < list.length; i++)
    for (const [k, n] of Object.entries(list[i].u.decisions))
      if (n) names.set(k, (names.get(k) || 0)
                          + delta(n, list[i - 1].u.decisions[k] || 0));
  return [...names].sort((a, b) => a[0] < b[0] ? -1 : 1);
};

const colour = new Map();
const colourOf = (name) => {
  if (!colour.has(name)) colour.set(name, colour.size % 8);
  return getComputedStyle(document.documentElement)
    .getPropertyValue("--c" + colour.get(name)).trim();
};

const drawChart = (u) => {
  const list = past.get($("upstream").value) || [];
  const names = reasons();
  const canvas = $("chart"), ctx = canvas.getContext("2d");
  const dpr = devicePixelRatio || 1;
  const w = canvas.clientWidth, h = canvas.clientHeight;

  if (canvas.width !== w * dpr || canvas.height !== h * dpr) {
    canvas.width = w * dpr;
    canvas.height = h * dpr;
  }
  ctx.setTransform(dpr, 0, 0, dpr, 0, 0);
  ctx.clearRect(0, 0, w, h);

  const bars = [];
  let max = 1;
  for (let i = 1; i < list.length; i++) {
    const s = Math.max(.001, (list[i].t - list[i - 1].t) / 1000);
    const v = names.map(([k]) => delta(list[i].u.decisions[k] || 0,
                                       list[i - 1].u.decisions[k] || 0) / s);
    max = Math.max(max, v.reduce((a, b) => a + b, 0));
    bars.push({ t: list[i].t, v });
  }

  const end = list.length ? list[list.length - 1].t : 0;
  const step = w / keep;
  for (const b of bars) {
    let y = h;
    const x = w - (end - b.t) / 1000 * step - step;
    b.v.forEach((v, k) => {
      const dy = v / max * (h - 14);
      ctx.fillStyle = colourOf(names[k][0]);
      ctx.fillRect(x, y - dy, Math.max(1, step - .5), dy);
      y -= dy;
    });
  }
  ctx.fillStyle = getComputedStyle(document.body).color;
  ctx.font = "11px system-ui, sans-serif";
  ctx.fillText(rate(max) + " / s", 4, 11);

  const box = $("legend"), all = names.reduce((n, [, v]) => n + v, 0);
  const want = names.length ? names
    : Object.entries(u.decisions).filter(([, n]) => n);
  const sum = names.length ? all : want.reduce((n, [, v]) => n + v, 0);
  while (box.children.length > want.length) box.lastChild.remove();
  want.forEach(([k, n], i) => {
    let e = box.children[i];
    if (!e) {
      e = make("span");
      e.append(make("i"), make("span"));
      box.append(e);
    }
    e.dataset.reason = k;
    e.children[0].style.background = colourOf(k);
    set(e.children[1], `${k} ${share(n, sum)} (${count(u.decisions[k])})`);
  });
};

/* --- what nginx kept: the same for all who look */

const drawHistory = (u) => {
  const list = u.history || [];
  const canvas = $("history"), ctx = canvas.getContext("2d");
  const dpr = devicePixelRatio || 1;
  const w = canvas.clientWidth, h = canvas.clientHeight;
  const style = getComputedStyle(document.documentElement);

  canvas.width = w * dpr;
  canvas.height = h * dpr;
  ctx.setTransform(dpr, 0, 0, dpr, 0, 0);

  const max = Math.max(1, ...list.map((x) => x.requests + x.rejects));
  const end = Date.parse(last.timestamp), step = w / 61;

  for (const x of list) {
    const at = w - (end - Date.parse(x.time)) / 10000 * step - step;
    let y = h;
    const bad = Math.min(x.errors, x.requests);
    for (const [n, c] of [[bad, "--bad"], [x.rejects, "--warn"],
                          [x.requests - bad, "--accent"]]) {
      const dy = n / max * (h - 14);
      ctx.fillStyle = style.getPropertyValue(c).trim();
      ctx.fillRect(at, y - dy, Math.max(1, step - 1), dy);
      y -= dy;
    }
  }
  ctx.fillStyle = getComputedStyle(document.body).color;
  ctx.font = "11px system-ui, sans-serif";
  ctx.fillText(rate(max / 10) + " / s", 4, 11);

  const now = list[list.length - 1];
  set($("span"), !now ? "the first step takes 10 s" : `${list.length} steps; `
    + `in the last one ${now.requests} requests, ${now.errors} errors, `
    + `${now.rejects} rejected, TTFT median ${time(now.ttft_p50)}, P95 `
    + time(now.ttft_p95));
};

const drawHealth = (u) => {
  const v = health(last), why = v.why.map(sentence);
  const sum = (k) => u.peers.reduce((n, p) =>
    n + (p.minute ? p.minute[k] : 0), 0);
  const up = u.peers.filter((p) => p.state === "up").length;

  $("health").className = v.state;
  set($("verdict"), why.length ? why[0]
    : `working: ${up} of ${u.peers.length} servers up, `
      + `${count(sum("requests"))} requests in the last minute, `
      + `${count(sum("errors"))} errors`);
  document.title = v.state === "green" ? "kvroute"
                                       : `${v.state}: ${why[0]} – kvroute`;

  const box = $("why"), more = why.slice(1);
  while (box.children.length > more.length) box.lastChild.remove();
  more.forEach((text, i) =>
    set(box.children[i] || box.appendChild(make("li")), text));
};

