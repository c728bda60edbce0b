/* where the JSON is: next to the page, or at ?json=/path */

const source = (() => {
  const asked = new URLSearchParams(location.search).get("json");
  const url = new URL(asked || "json", location.href);
  return url.origin === location.origin ? url.href : "json";
})();

const keep = 120;                       /* seconds of history */
const past = new Map();                 /* by upstream: [{t, u}] */
let last = null, paused = false, sort = { key: "wrong", down: true };

const $ = (id) => document.getElementById(id);

const make = (name, text, cls) => {
  const e = document.createElement(name);
  if (text !== undefined) e.textContent = text;
  if (cls) e.className = cls;
  return e;
};

const set = (e, text) => { if (e.textContent !== text) e.textContent = text; };

/* gives a box one child per item */

const drawList = (box, list, create, update) => {
  while (box.children.length > list.length) box.lastChild.remove();
  list.forEach((x, i) =>
    update(box.children[i] || box.appendChild(create()), x));
};

/* gives a table one row per item: its key, its cells, and which are wrong; kinds:
   a letter per column, "n" for numbers */

const drawTable = (id, key, kinds, list) => drawList($(id).tBodies[0], list,
  () => {
    const tr = make("tr");
    tr.append(...[...kinds].map((k) => make("td", "", k === "n" ? "num" : "")));
    return tr;
  }, (tr, x) => {
    tr.dataset[key] = x.key;
    x.cells.forEach((v, k) => {
      set(tr.cells[k], v);
      tr.cells[k].classList.toggle("wrong", (x.wrong || []).includes(k));
    });
  });

/* --- numbers for people */

const bytes = (n) => {
  if (!(n >= 0)) return "–";
  for (const u of ["B", "KB", "MB", "GB", "TB"]) {
    if (n < 1000 || u === "TB")
      return (u === "B" || n >= 100 ? n.toFixed(0) : n.toFixed(1)) + " " + u;
    n /= 1024;
  }
};

const count = (n) => n >= 1e6 ? (n / 1e6).toFixed(1) + " M"
                   : n >= 1e4 ? (n / 1e3).toFixed(1) + " k" : String(n);

const rate = (n) => n === null ? "–" : n >= 10 ? n.toFixed(0) : n.toFixed(1);

const share = (a, b) => b > 0 ? (100 * a / b).toFixed(1) + "%" : "–";

const time = (s) => s === null || s === undefined ? "–"
                  : s >= 10 ? s.toFixed(1) + " s"
                  : s >= 1 ? s.toFixed(2) + " s"
                  : s >= 1e-3 ? (s * 1e3).toFixed(0) + " ms"
                  : (s * 1e6).toFixed(0) + " µs";

/* a counter that went down was reset */

const delta = (now, then) => now >= then ? now - then : now;

const total = (u, key) => u.peers.reduce((n, p) => n + (p[key] || 0), 0);

/* the quantile q of a histogram's new observations */

const quantile = (now, then, q) => {
  if (!now) return null;
  const old = then && then.count <= now.count ? then : { count: 0, buckets: {} };
  const all = now.count - old.count;
  if (all <= 0) return null;
  const bounds = Object.keys(now.buckets).filter((k) => k !== "+Inf")
    .map(Number).sort((a, b) => a - b);
  let low = 0, before = 0;
  for (const b of bounds) {
    const n = now.buckets[b] - (old.buckets[b] || 0);
    if (n >= q * all)
      return n > before ? low + (b - low) * (q * all - before) / (n - before)
                        : b;
    low = b;
    before = n;
  }
  return low;
};

